/** JSON or text in a box that can be copied. Keys, strings and numbers have colours. */

import { t } from '../i18n'
import { CopyButton } from './copy'

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

function* parts(text: string) {
  let end = 0
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > end) yield { text: text.slice(end, match.index) }
    const [whole, string, colon] = match
    if (string && colon) {
      yield { text: string, kind: 'json-key' }
      yield { text: colon }
    } else yield { text: whole, kind: string ? 'json-string' : 'json-number' }
    end = match.index + whole.length
  }
  if (end < text.length) yield { text: text.slice(end) }
}

export function CodeBlock({ label, value }: { label: string; value: unknown }) {
  const json = typeof value !== 'string'
  const text = json ? JSON.stringify(value, null, 2) ?? '' : value
  return (
    <div class="code-box">
      <pre class="code" role="region" tabIndex={0} aria-label={label}>
        <code>{json ? [...parts(text)].map((part, index) => part.kind ? <span key={index} class={part.kind}>{part.text}</span> : part.text) : text}</code>
      </pre>
      <CopyButton text={text} label={t('copy.value', { value: label })} />
    </div>
  )
}
