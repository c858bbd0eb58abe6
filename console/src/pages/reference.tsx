/** The API reference: all operations with a search, or one of them. */

import { signal } from '@preact/signals'

import { place } from '../app/router'
import { at } from '../app/session'
import { t } from '../i18n'
import { find, type Listed } from '../reference/document'
import { OPERATIONS } from '../reference/operations'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { Head, Section } from '../ui/head'
import { TextField } from '../ui/field'
import { OperationPage } from './reference-operation'
import { Code, Verb } from './reference-text'
import '../style/reference.css'

/** Stays while the person reads an operation. */
const typed = signal('')

export default function Reference() {
  const id = place.value.query.get('id')
  if (id === null) return <List />
  const listed = OPERATIONS.find((operation) => operation.id === id)
  return listed ? <OperationPage listed={listed} /> : (
    <>
      <Head title={t('page.reference')} />
      <Empty icon="search" title={t('reference.missing', { id })} text={t('reference.missing.text')}>
        <a class="button" href={at('reference')}>{t('reference.all')}</a>
      </Empty>
    </>
  )
}

function List() {
  const found = find(OPERATIONS, typed.value)
  const tags = [...new Set(found.map(({ tag }) => tag))]
  return (
    <>
      <Head title={t('page.reference')} text={t('reference.lead')} />
      <div class="reference-search">
        <TextField label={t('reference.search')} hint={t('reference.search.hint')} value={typed.value} onChange={(value) => void (typed.value = value)} />
        <p class="soft" role="status">{t('reference.count', { count: found.length })}</p>
      </div>
      {found.length === 0 && (
        <Empty icon="search" title={t('reference.nothing')} text={t('reference.nothing.text')}>
          <Button onClick={() => void (typed.value = '')}>{t('reference.clear')}</Button>
        </Empty>
      )}
      {tags.map((tag) => (
        <Section key={tag} title={tag}>
          <ul class="operations">
            {found.filter((operation) => operation.tag === tag).map((operation) => <li key={operation.id}><Line {...operation} /></li>)}
          </ul>
        </Section>
      ))}
    </>
  )
}

const Line = ({ id, method, path, summary }: Listed) => (
  <a href={at('reference', { id })}>
    <Verb method={method} />
    <code>{path}</code>
    <span lang="en"><Code text={summary} /></span>
  </a>
)
