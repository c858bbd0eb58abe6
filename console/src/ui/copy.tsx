import { useState } from 'preact/hooks'

import { t } from '../i18n'
import { Icon } from './icon'
import { toast } from './toast'

/** Copies, and tells the person. False: the browser does not allow it. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
  } catch {
    toast(t('copy.refused'), 'bad')
    return false
  }
  toast(t('copy.done'))
  return true
}

export function CopyButton({ text, label }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false)
  async function copy(): Promise<void> {
    if (!(await copyText(text))) return
    setCopied(true)
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
