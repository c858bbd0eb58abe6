/** The head of a page: title, state, and what one can do here. */

import type { ComponentChildren } from 'preact'

interface Props { title: string; kind?: string; badge?: ComponentChildren; text?: string; children?: ComponentChildren }

export function Head({ title, kind, badge, text, children }: Props) {
  return (
    <header class="head">
      <div class="head-text">
        {kind && <p class="kind">{kind}</p>}
        <h1 tabIndex={-1}>{title} {badge}</h1>
        {text && <p class="lead">{text}</p>}
      </div>
      {children && <div class="head-actions">{children}</div>}
    </header>
  )
}

export function Section({ title, actions, children }: { title: string; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="section">
      <header class="section-head">
        <h2>{title}</h2>
        {actions && <div class="head-actions">{actions}</div>}
      </header>
      {children}
    </section>
  )
}
