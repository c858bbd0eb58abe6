/** `?`: the keys. */

import { t } from '../i18n'
import { Dialog } from '../ui/dialog'
import { PAGES } from './routes'
import { mayOpen } from './session'

export function Help({ onClose }: { onClose(): void }) {
  const keys: [string[], string][] = [
    [['/'], t('help.search')],
    [['Ctrl', 'K'], t('help.palette')],
    [['?'], t('help.help')],
    [['Esc'], t('help.close')],
    ...PAGES.filter(mayOpen).map((page): [string[], string] => [['g', page.key], t(page.title)]),
  ]
  return (
    <Dialog title={t('help.title')} onClose={onClose}>
      <div class="dialog-body">
        <dl class="keys">
          {keys.map(([press, meaning]) => (
            <div key={meaning}><dt>{press.map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{meaning}</dd></div>
          ))}
        </dl>
      </div>
    </Dialog>
  )
}
