/** Nothing here yet: why, and the next step. */

import type { ComponentChildren } from 'preact'

import { Icon, type IconName } from './icon'

interface Props { icon: IconName; title: string; text: string; children?: ComponentChildren }

export function Empty({ icon, title, text, children }: Props) {
  return (
    <div class="empty">
      <span class="empty-icon"><Icon name={icon} /></span>
      <p class="empty-title">{title}</p>
      <p>{text}</p>
      {children && <div class="empty-actions">{children}</div>}
    </div>
  )
}
