/** Modal dialogs on the browser's own `<dialog>`: it keeps the focus inside and gives it back. */

import type { ComponentChildren } from 'preact'
import { useId, useLayoutEffect, useRef } from 'preact/hooks'

import { t } from '../i18n'
import { Button } from './button'
import { ErrorBox } from './error'
import { Icon } from './icon'
import { Toasts } from './toast'

interface Props {
  title: string
  onClose(): void
  children: ComponentChildren
  wide?: boolean
}

export function Dialog({ title, onClose, children, wide }: Props) {
  const id = useId()
  const box = useRef<HTMLDialogElement>(null)
  const closing = useRef(false)
  // Before the browser paints, so Escape closes what a person sees.
  useLayoutEffect(() => {
    const dialog = box.current
    const before = document.activeElement
    dialog?.showModal()
    dialog?.querySelector<HTMLElement>('[data-autofocus], .dialog-body input, .dialog-body select, .dialog-body textarea, .dialog-actions .button')?.focus()
    return () => {
      closing.current = true
      dialog?.close()
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  return (
    <dialog
      ref={box}
      class={`dialog${wide ? ' wide-dialog' : ''}`}
      aria-labelledby={id}
      // Escape, and on phones the gesture for "back".
      onClose={() => closing.current || onClose()}
    >
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" class="copy" aria-label={t('action.close')} onClick={onClose}><Icon name="close" /></button>
      </header>
      {children}
      {/* Those of the page lie behind the dialog, out of reach. */}
      <Toasts />
    </dialog>
  )
}

interface FormProps extends Props {
  submit: string
  danger?: boolean
  busy: boolean
  error: unknown
  reason?: string | undefined
  onSubmit(): void
}

export function FormDialog({ submit, danger, busy, error, reason, onSubmit, children, ...dialog }: FormProps) {
  return (
    <Dialog {...dialog}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          if (!busy && !reason) onSubmit()
        }}
      >
        <div class="dialog-body">
          {children}
          <ErrorBox error={error} />
        </div>
        <footer class="dialog-actions">
          <Button onClick={dialog.onClose}>{t('action.cancel')}</Button>
          <Button type="submit" kind={danger ? 'danger' : 'primary'} busy={busy} reason={reason}>{submit}</Button>
        </footer>
      </form>
    </Dialog>
  )
}
