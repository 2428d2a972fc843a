// How a workload is named in the address of the why drawer, and in the API: namespace/kind/name. Pure.

interface Named {
  namespace: string;
  name: string; // job/train, gang/llama, pod/notebook, or a pod's name alone
}

export function whySubject({ namespace, name }: Named): string {
  const [kind, rest] = name.includes("/") ? split(name) : ["pod", name];
  return `${namespace}/${kind}/${rest}`;
}

export interface Subject {
  namespace: string;
  kind: string;
  name: string;
}

export function parseSubject(text: string): Subject | null {
  const [namespace = "", kind = "", ...rest] = text.split("/");
  const name = rest.join("/");
  return namespace && kind && name ? { namespace, kind, name } : null;
}

export function whyPath({ namespace, kind, name }: Subject): string {
  return `/why/${[namespace, kind, name].map(encodeURIComponent).join("/")}`;
}

function split(name: string): [string, string] {
  const at = name.indexOf("/");
  return [name.slice(0, at), name.slice(at + 1)];
}
