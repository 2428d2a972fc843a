// A sentence of the engine: parts between back quotes are code.
export function Sentence({ text }: { text: string | undefined }) {
  const parts = (text ?? "").split("`");
  return <>{parts.map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}</>;
}
