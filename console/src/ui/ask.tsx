/** "Do you really want this?" before a change that cannot be undone: `if (await ask({…}))`. */

import { signal } from '@preact/signals'
import { useEffect, useState } from 'preact/hooks'

import { t } from '../i18n'
import { FormDialog } from './dialog'
import { TextField } from './field'

interface Question {
  title: string
  text: string
  confirm: string
  danger?: boolean
  /** The person has to type this. */
  typed?: string
}

const open = signal<(Question & { answer(yes: boolean): void }) | undefined>(undefined)

export function ask(question: Question): Promise<boolean> {
  return new Promise((resolve) => {
    open.value = {
      ...question,
      answer: (yes) => {
        open.value = undefined
        resolve(yes)
      },
    }
  })
}

/** The answer "no" to an open question: its page is gone. */
export const withdrawQuestion = (): void => open.value?.answer(false)

export function Questions() {
  useEffect(() => withdrawQuestion, [])
  return open.value ? <Asked key={open.value.title} {...open.value} /> : null
}

function Asked({ title, text, confirm, danger = true, typed, answer }: Question & { answer(yes: boolean): void }) {
  const [value, setValue] = useState('')
  return (
    <FormDialog
      title={title}
      submit={confirm}
      danger={danger}
      busy={false}
      error={undefined}
      reason={typed !== undefined && value !== typed ? t('ask.type', { value: typed }) : undefined}
      onSubmit={() => answer(true)}
      onClose={() => answer(false)}
    >
      <p>{text}</p>
      {typed !== undefined && <TextField label={t('ask.type', { value: typed })} value={value} onChange={setValue} mono autofocus />}
    </FormDialog>
  )
}
