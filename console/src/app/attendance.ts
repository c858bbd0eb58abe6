/** Whether a person uses the page: its repeated requests must not keep a forgotten session alive. */

export const ATTENDED_MS = 2 * 60_000
const INPUT = ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchstart'] as const

let usedAt = Date.now()

/** Call once at start. */
export function watchInput(target: EventTarget): void {
  const used = (): void => void (usedAt = Date.now())
  for (const event of INPUT) target.addEventListener(event, used, { passive: true, capture: true })
}

export const attended = (): boolean => Date.now() - usedAt < ATTENDED_MS
