import { useState } from 'preact/hooks'

import { t } from '../i18n'
import { Icon } from './icon'
import { toast } from './toast'

export function CopyButton({ text, label }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false)
  async function copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      toast(t('copy.refused'), 'bad')
      return
    }
    setCopied(true)
    toast(t('copy.done'))
    setTimeout(() => setCopied(false), 2000)
  }
  return (
    <button type="button" class="copy" aria-label={label ?? t('copy.value', { value: text.slice(0, 60) })} onClick={() => void copy()}>
      <Icon name={copied ? 'check' : 'copy'} />
    </button>
  )
}

/** An identifier: monospaced, with a button that copies it. */
export function Id({ value }: { value: string }) {
  return <span class="id"><code>{value}</code><CopyButton text={value} /></span>
}
