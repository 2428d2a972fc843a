// States that are several words, such as "allocated,reserved": a filter names all of it or one word. Pure.

export function hasState(state: string, wanted: string): boolean {
  return !wanted || state === wanted || state.split(",").includes(wanted);
}

/** How many items have each state, and the wanted one where it is a part of others. */
export function stateOptions(states: readonly string[], wanted: string): { value: string; text: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
  if (wanted && !counts.has(wanted)) counts.set(wanted, states.filter((state) => hasState(state, wanted)).length);
  return [...counts].map(([value, count]) => ({ value, text: value.replaceAll(",", ", "), count }));
}
