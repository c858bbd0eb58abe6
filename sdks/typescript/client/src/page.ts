/** Whether the page is visible, and when the network returns. Without a document, as in Node.js, nothing is reported. */

/** @internal */
export interface PageChange {
  hidden?: boolean
  online?: boolean
}

/** Reports the present visibility and each change; returns a function that stops. @internal */
export function watchPage(changed: (page: PageChange) => void): () => void {
  const { document, addEventListener, removeEventListener } = globalThis as any
  if (!document?.addEventListener || !addEventListener) return () => {}
  const shown = () => changed({ hidden: document.hidden })
  const online = () => changed({ online: true })
  document.addEventListener('visibilitychange', shown)
  addEventListener('online', online)
  shown()
  return () => {
    document.removeEventListener('visibilitychange', shown)
    removeEventListener('online', online)
  }
}
