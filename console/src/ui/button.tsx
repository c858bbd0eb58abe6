import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'

import { Icon, type IconName } from './icon'

interface Props {
  children?: ComponentChildren
  kind?: 'primary' | 'plain' | 'danger' | 'quiet'
  type?: 'button' | 'submit'
  icon?: IconName
  busy?: boolean
  /** Why the action is not possible. The button stays focusable so that keyboard users can read the reason. */
  reason?: string | undefined
  label?: string
  small?: boolean
  onClick?: (event: MouseEvent) => void
}

export function Button({ children, kind = 'plain', type = 'button', icon, busy, reason, label, small, onClick }: Props) {
  const id = useId()
  const inert = busy === true || reason !== undefined
  return (
    <span class="button-box">
      <button
        type={type}
        class={`button ${kind}${small ? ' small' : ''}${children ? '' : ' only-icon'}`}
        aria-disabled={inert || undefined}
        aria-busy={busy || undefined}
        aria-label={label}
        aria-describedby={reason ? id : undefined}
        title={children ? undefined : label}
        onClick={(event) => {
          if (inert) event.preventDefault()
          else onClick?.(event)
        }}
      >
        {busy ? <span class="spinner" aria-hidden="true" /> : icon && <Icon name={icon} />}
        {children && <span>{children}</span>}
      </button>
      {reason && <span class="tip" role="tooltip" id={id}>{reason}</span>}
    </span>
  )
}
