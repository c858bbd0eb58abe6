/** Mounts components in StrictMode, with what React reported. */

import { act, StrictMode, type ReactNode } from 'react'
import { createRoot, hydrateRoot, type Root } from 'react-dom/client'

import { settle } from '../../inbox/test/service.js'
;(globalThis as any).IS_REACT_ACT_ENVIRONMENT = true

/** Effects run at the end of `act`: what they start has time in another one. */
export async function acted(callback: () => unknown): Promise<void> {
  await act(async () => void (await callback()))
  await act(settle)
}

export async function mount(children: ReactNode, { html, strict = true }: { html?: string; strict?: boolean } = {}) {
  const complaints: string[] = []
  const { error } = console
  console.error = (...args: unknown[]) => void complaints.push(args.map(String).join(' '))
  const container = document.body.appendChild(document.createElement('div'))
  if (html !== undefined) container.innerHTML = html
  const wrap = (children: ReactNode) => (strict ? <StrictMode>{children}</StrictMode> : children)
  let root!: Root
  await acted(() => {
    if (html === undefined) (root = createRoot(container)).render(wrap(children))
    else root = hydrateRoot(container, wrap(children), { onRecoverableError: (error) => void complaints.push(String(error)) })
  })
  return {
    container,
    complaints,
    text: () => container.textContent,
    render: (children: ReactNode) => acted(() => root.render(wrap(children))),
    unmount: async () => {
      await acted(() => root.unmount())
      container.remove()
      console.error = error
    },
  }
}
