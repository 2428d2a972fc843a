// The name of a node as a link to its page; one that the user may not read leads nowhere.
const HIDDEN = "(hidden)";

export function NodeLink({ name }: { name: string }) {
  return name === HIDDEN ? <span class="dim">{name}</span> : <a href={`/nodes/${encodeURIComponent(name)}`}>{name}</a>;
}
