/** A link that the server shows once: an invitation, or a log-in. */

import { t } from '../i18n'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Dialog } from '../ui/dialog'

/** `link` is a path of this server; people need the whole address. */
export function NewLink({ title, text, link, onClose }: { title: string; text: string; link: string; onClose(): void }) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="dialog-body"><p>{text}</p><CodeBlock label={t('invitations.link')} value={new URL(link, location.origin).href} /></div>
      <footer class="dialog-actions"><Button kind="primary" onClick={onClose}>{t('action.close')}</Button></footer>
    </Dialog>
  )
}
