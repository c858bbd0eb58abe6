/** Texts of the OpenAPI documents: paragraphs with code between backticks. They are in English. */

import type { Method } from '../reference/document'

export function Code({ text }: { text: string }) {
  return <>{text.split('`').map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>
}

export function Prose({ text }: { text: string | undefined }) {
  if (!text) return null
  return <div class="prose" lang="en">{text.split(/\n{2,}/).map((part, index) => <p key={index}><Code text={part} /></p>)}</div>
}

export const Verb = ({ method }: { method: Method }) => <span class={`verb ${method.toLowerCase()}`}>{method}</span>
