// The mark of the program: a dovetail joint.
export function Mark() {
  return (
    <svg class="mark-logo" width="20" height="20" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" class="mark-ground" />
      <path d="M7 8h18v6l-5 4 5 4v3H7v-3l5-4-5-4z" fill="#fff" />
    </svg>
  );
}
