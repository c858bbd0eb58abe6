/** The sign of Noroshi: a beacon with smoke. */

export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" width="24" height="24" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" />
      <path d="M7 25h18M11 25l5-8 5 8M16 14c-4-3 3-4.500 0-8" />
    </svg>
  )
}
