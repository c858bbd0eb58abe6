/** One operation: what it does, who may call it, what it takes and answers; beside it a form to try it, and snippets. */

import { useLoad } from '../app/load'
import { app, at, canEverywhere, can } from '../app/session'
import { t, tValue } from '../i18n'
import { type Answer, answerIn, codesOf, type Document, documentOf, type Listed, type Media, type Operation, operationIn, scopesOf } from '../reference/document'
import { namesFor } from '../reference/names'
import { parametersOf } from '../reference/call'
import { descriptions, type Schema, type Schemas } from '../reference/schema'
import { Badge } from '../ui/badge'
import { CodeBlock } from '../ui/code'
import { CopyButton } from '../ui/copy'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Head, Section } from '../ui/head'
import { Skeleton } from '../ui/skeleton'
import { Described, Opened, SchemaView } from './reference-schema'
import { Code, Prose, Verb } from './reference-text'
import { Workbench } from './reference-workbench'

/** Names that examples of bodies may contain. */
const IN_BODIES = ['user', 'device', 'topic']

export function OperationPage({ listed }: { listed: Listed }) {
  const load = useLoad(`operation ${listed.id} ${app.value}`, async () => {
    const document = await documentOf(listed)
    const operation = operationIn(document, listed)
    const names = await namesFor(listed, app.value, operation.requestBody ? IN_BODIES : [])
    return { document, operation, names }
  })
  return (
    <>
      <Head title={listed.summary.replaceAll('`', '')} kind={`${t('page.reference')} · ${listed.tag}`}>
        <a class="button" href={at('reference')}>{t('reference.all')}</a>
      </Head>
      <p class="operation-path"><Verb method={listed.method} /> <code>{listed.path}</code> <CopyButton text={listed.path} /></p>
      <nav class="operation-jump" aria-label={t('reference.jump')}>
        <a href="#try">{t('reference.request')}</a>
        <a href="#snippets">{t('reference.snippets')}</a>
      </nav>
      <ErrorBox error={load.error} retry={load.reload} />
      {!load.data && !load.error && <Skeleton rows={10} />}
      {load.data && (
        <div class="operation">
          <div class="operation-text"><Text listed={listed} document={load.data.document} operation={load.data.operation} /></div>
          <div class="operation-side"><Workbench listed={listed} document={load.data.document} operation={load.data.operation} names={load.data.names} /></div>
        </div>
      )}
    </>
  )
}

interface Props { listed: Listed; document: Document; operation: Operation }

function Text({ listed, document, operation }: Props) {
  const { schemas } = document.components
  const parameters = parametersOf(operation)
  const answers = Object.entries(operation.responses).map(([status, answer]) => ({ status, answer: answerIn(document, answer) })).sort((a, b) => Number(a.status) - Number(b.status))
  const good = answers.filter(({ status }) => Number(status) < 400)
  const bad = answers.filter(({ status }) => Number(status) >= 400)
  return (
    <>
      <Prose text={operation.description} />
      <Section title={t('reference.who')}><Who listed={listed} operation={operation} /></Section>
      {parameters.length > 0 && (
        <Section title={t('reference.parameters')}>
          <ul class="schema">
            {parameters.map(({ name, in: place, required, description, schema }) => (
              <li key={`${place} ${name}`}>
                <p class="small-head">{t(`reference.in.${place}`)}</p>
                <Described name={name} schema={schema} schemas={schemas} required={required ?? false} description={description} />
              </li>
            ))}
          </ul>
        </Section>
      )}
      {operation.requestBody && (
        <Section title={t('reference.body')}>
          <Prose text={operation.requestBody.description} />
          {Object.entries(operation.requestBody.content).map(([type, media]) => <MediaView key={type} type={type} media={media} document={document} required={operation.requestBody?.required ?? false} />)}
        </Section>
      )}
      <Section title={t('reference.answers')}>
        {good.map(({ status, answer }, index) => (
          <Opened key={status} open={index === 0} title={<><Badge tone="good">{status}</Badge> <span lang="en"><Code text={answer.description} /></span></>}>
            <AnswerView answer={answer} document={document} />
          </Opened>
        ))}
      </Section>
      {bad.length > 0 && <Section title={t('reference.errors')}><Errors answers={bad} /></Section>}
    </>
  )
}

function Who({ listed, operation }: Omit<Props, 'document'>) {
  const { needed, documents } = listed
  const scheme = (name: string): boolean => operation.security?.some((one) => name in one) ?? false
  const scopes = scopesOf(operation)
  const isOpen = documents[0] !== 'session' && (!operation.security?.length || operation.security.some((one) => Object.keys(one).length === 0))
  const has = needed?.permission && (needed.where === 'app' ? can(needed.permission) : canEverywhere(needed.permission))
  return (
    <Facts facts={[
      [t('reference.where'), documents.map((name) => t(`reference.document.${name}`)).join(', ')],
      scheme('apiKey') && [t('reference.key'), scopes.length > 0 ? <span class="chips">{scopes.map((scope) => <code key={scope}>{scope}</code>)}</span> : t('reference.anyScope')],
      scheme('deviceToken') && [t('reference.device'), t('reference.device.text')],
      (scheme('operatorToken') || documents.includes('admin') && !isOpen) && [t('reference.operator'), t('reference.operator.text')],
      scheme('vapid') && [t('reference.vapid'), t('reference.vapid.text')],
      isOpen && [t('reference.open'), t('reference.open.text')],
      [t('reference.people'), !needed ? t('reference.people.none')
        : needed.where === 'anybody' ? t('reference.people.anybody')
        : needed.where === 'person' || !needed.permission ? t('reference.people.person')
        : (
          <>
            {t(needed.where === 'app' ? 'reference.people.app' : 'reference.people.everywhere', { permission: t(`permission.${needed.permission}`) })}{' '}
            <Badge tone={has ? 'good' : 'warn'}>{has ? t('reference.people.have') : t('reference.people.lack')}</Badge>
          </>
        )],
      needed?.dangerous && [t('reference.dangerous'), t('reference.dangerous.text')],
    ]} />
  )
}

function MediaView({ type, media, document, required }: { type: string; media: Media; document: Document; required?: boolean }) {
  const { schemas } = document.components
  const examples = media.examples ? Object.values(media.examples) : media.example !== undefined ? [{ summary: undefined, value: media.example }] : []
  return (
    <>
      <p class="schema-head"><code>{type}</code>{required !== undefined && <span class={required ? 'schema-required' : 'soft'}>{required ? t('reference.required') : t('reference.optional')}</span>}</p>
      {media.schema && <Shape schema={media.schema} schemas={schemas} />}
      {examples.map(({ summary, value }, index) => (
        <Opened key={index} title={<>{t('reference.example')}{summary && <>: <span lang="en">{summary}</span></>}</>}>
          <CodeBlock label={summary ? `${t('reference.example')}: ${summary}` : t('reference.example')} value={value} />
        </Opened>
      ))}
    </>
  )
}

function Shape({ schema, schemas }: { schema: Schema; schemas: Schemas }) {
  return <>{descriptions(schema, schemas).map((text) => <Prose key={text} text={text} />)}<SchemaView schema={schema} schemas={schemas} /></>
}

function AnswerView({ answer, document }: { answer: Answer; document: Document }) {
  const headers = Object.entries(answer.headers ?? {})
  const content = Object.entries(answer.content ?? {})
  return (
    <>
      {headers.length > 0 && <Facts facts={headers.map(([name, { description, schema }]) => [name, <span lang="en"><Code text={description ?? String(schema?.type ?? '')} /></span>] as const)} />}
      {content.length === 0 && <p class="soft">{t('reference.noBody')}</p>}
      {content.map(([type, media]) => <MediaView key={type} type={type} media={media} document={document} />)}
    </>
  )
}

function Errors({ answers }: { answers: { status: string; answer: Answer }[] }) {
  return (
    <div class="table-box" role="region" aria-label={t('reference.errors')} tabIndex={0}>
      <table class="table">
        <thead><tr><th scope="col">{t('reference.status')}</th><th scope="col">{t('reference.code')}</th><th scope="col">{t('reference.meaning')}</th></tr></thead>
        <tbody>
          {answers.flatMap(({ status, answer }) => {
            const codes = codesOf(answer.description)
            if (codes.length === 0) return [<tr key={status}><td>{status}</td><td><span class="none">–</span></td><td lang="en"><Code text={answer.description} /></td></tr>]
            return codes.map(({ code, text }) => (
              <tr key={`${status} ${code}`}>
                <td>{status}</td>
                <td><code>{code}</code></td>
                <td>{tValue('problem', code)}<small class="below" lang="en"><Code text={text} /></small></td>
              </tr>
            ))
          })}
        </tbody>
      </table>
    </div>
  )
}
