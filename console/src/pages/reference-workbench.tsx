/** Beside an operation: the form of a request, what the server answers to it, and the same request as a program. */

import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'

import { admin, API, body as read, exchange } from '../api/client'
import { ApiError, type Problem, problemOf } from '../api/error'
import { useAction } from '../app/action'
import { bytes, duration } from '../app/format'
import { useLoad } from '../app/load'
import { app, at, can, canEverywhere } from '../app/session'
import { t } from '../i18n'
import { type Call, callOf, faultOf, type Filled, headersOf, parametersOf, proofOf, target } from '../reference/call'
import { type Document, isStream, type Listed, type Media, type Operation, type Parameter } from '../reference/document'
import { kindsIn, type Names, personal } from '../reference/names'
import { core, limits, sample } from '../reference/schema'
import { type Language, LANGUAGES, snippet } from '../reference/snippet'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Id } from '../ui/copy'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Select, TextArea, TextField } from '../ui/field'
import { Section } from '../ui/head'
import { Skeleton } from '../ui/skeleton'
import { Tabs } from '../ui/tabs'
import { Opened } from './reference-schema'

interface Props { listed: Listed; document: Document; operation: Operation; names: Names }

/** For all operations that the person reads. */
const language = signal<Language>('curl')
const typedBase = signal<string | undefined>(undefined)

const UNKNOWN = 'https://noroshi.example.com'

/** The public address: the node knows it, or the console is served there. */
async function publicAddress(): Promise<string | undefined> {
  if (canEverywhere('read')) {
    const { nodes } = await read(admin.GET('/v1/nodes'))
    const serving = nodes.filter(({ roles }) => roles.includes('api') || roles.includes('front'))
    const node = serving.find((one) => one.this) ?? serving[0]
    if (node) return reachable(node.http)
  }
  // Only the public address has this page.
  const docs = await fetch('/docs', { method: 'HEAD' })
  return docs.ok ? location.origin : undefined
}

/** A node that listens on all interfaces names none of them. */
function reachable(address: string): string {
  const url = new URL(/^https?:/.test(address) ? address : `http://${address}`)
  if (/^(0\.0\.0\.0|\[::\])$/.test(url.hostname)) url.hostname = location.hostname
  return url.origin
}

interface Example { name: string; text: string }

function examplesOf(media: Media | undefined, { document, names, listed }: Props): Example[] {
  if (!media) return []
  const write = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(personal(value, names, listed.id), null, 2))
  if (media.examples) return Object.values(media.examples).map(({ summary, value }, index) => ({ name: summary ?? String(index + 1), text: write(value) }))
  if (media.example !== undefined) return [{ name: t('reference.example'), text: write(media.example) }]
  const value = media.schema ? sample(media.schema, document.components.schemas) : ''
  return [{ name: t('reference.example'), text: write(value) }]
}

export function Workbench(props: Props) {
  const { listed, document, operation, names } = props
  const content = operation.requestBody?.content ?? {}
  const [type, media] = Object.entries(content)[0] ?? []
  const examples = examplesOf(media, props)
  const [values, setValues] = useState<Record<string, string>>(() => initial(listed, operation, document, names))
  const [text, setText] = useState(examples[0]?.text ?? '')
  const sendsBody = type !== undefined && (text !== '' || operation.requestBody?.required === true)
  const filled: Filled = { values, ...(sendsBody ? { body: text, type } : {}) }
  const base = useLoad('public address', publicAddress)
  const own = listed.documents[0]
  const found = own === 'session' ? location.origin + API : own === 'admin' ? location.origin : base.data ?? (base.loading ? '' : UNKNOWN)
  const shownBase = (own === 'provider' ? typedBase.value : undefined) ?? found
  const call = callOf(shownBase, listed, operation, filled, app.value)

  return (
    <>
      <Section title={t('reference.request')}>
        <div class="panel stack" id="try">
          <Form {...props} values={values} onValues={setValues} text={text} onText={setText} type={type} examples={examples} />
          <Try {...props} filled={filled} />
        </div>
      </Section>
      <Section title={t('reference.snippets')}>
        <span id="snippets" />
        {operation.responses['101'] ? <p class="soft">{t('reference.snippets.none')}</p> : shownBase === '' && base.loading ? <Skeleton rows={4} /> : (
          <Snippets call={call} listed={listed} operation={operation}>
            {own === 'provider' && (
              <TextField
                label={t('reference.address')}
                hint={base.data === undefined && !base.loading ? t('reference.address.unknown') : undefined}
                value={shownBase}
                onChange={(value) => void (typedBase.value = value)}
                mono
              />
            )}
          </Snippets>
        )}
      </Section>
    </>
  )
}

/** The app's own names, then the examples of required parameters. */
function initial({ path }: Listed, operation: Operation, document: Document, names: Names): Record<string, string> {
  const values: Record<string, string> = {}
  for (const { name, required, schema, example } of parametersOf(operation)) {
    const shown = example ?? core(schema, document.components.schemas).example ?? core(schema, document.components.schemas).enum?.[0]
    if (required && shown !== undefined) values[name] = String(shown)
  }
  for (const [parameter, kind] of kindsIn(path)) if (names[kind]) values[parameter] = names[kind]
  return values
}

interface FormProps extends Props {
  values: Record<string, string>
  onValues(values: Record<string, string>): void
  text: string
  onText(text: string): void
  type: string | undefined
  examples: Example[]
}

function Form({ operation, document, values, onValues, text, onText, type, examples }: FormProps) {
  const [example, setExample] = useState('0')
  const parameters = parametersOf(operation)
  const isJson = type !== undefined && /[/+]json$/.test(type)
  const rows = Math.min(20, Math.max(3, text.split('\n').length + 1))
  const field = (parameter: Parameter) => (
    <ParameterField key={`${parameter.in} ${parameter.name}`} parameter={parameter} document={document} values={values} onChange={(value) => onValues({ ...values, [parameter.name]: value })} />
  )
  // Beside a body, what few requests need is out of the way.
  const later = type === undefined ? [] : parameters.filter(({ required }) => !required)
  return (
    <>
      {parameters.filter((parameter) => !later.includes(parameter)).map(field)}
      {examples.length > 1 && (
        <Select
          label={t('reference.example')}
          value={example}
          onChange={(index) => { setExample(index); onText(examples[Number(index)]?.text ?? '') }}
          options={examples.map(({ name }, index) => ({ value: String(index), label: name }))}
        />
      )}
      {type !== undefined && (
        <TextArea label={t('reference.bodyOf', { type })} error={isJson && (text !== '' || operation.requestBody?.required) ? faultOfJson(text) : undefined} value={text} onChange={onText} rows={rows} mono />
      )}
      {later.length > 0 && <Opened title={t('reference.more')}><div class="stack">{later.map(field)}</div></Opened>}
      {parameters.length === 0 && type === undefined && <p class="soft">{t('reference.nothingToFill')}</p>}
    </>
  )
}

function faultOfJson(text: string): string | undefined {
  try {
    JSON.parse(text)
    return undefined
  } catch (error) {
    return t('json.invalid', { detail: error instanceof Error ? error.message : String(error) })
  }
}

function ParameterField({ parameter, document, values, onChange }: { parameter: Parameter; document: Document; values: Record<string, string>; onChange(value: string): void }) {
  const { name, in: place, required, schema } = parameter
  const { schemas } = document.components
  const value = values[name] ?? ''
  const own = core(schema, schemas)
  const options = own.enum?.map(String) ?? (own.type === 'boolean' ? ['true', 'false'] : undefined)
  if (options) return <Select label={name} value={value} onChange={onChange} options={[...(required ? [] : ['']), ...options].map((option) => ({ value: option, label: option || '–' }))} />
  const preset = limits(schema, schemas).find((limit) => limit.kind === 'default')
  const fault = faultOf(parameter, values)
  return (
    <TextField
      label={name}
      hint={required || place === 'path' ? undefined : preset && 'text' in preset ? t('reference.default', { value: preset.text }) : t('field.optional')}
      // An empty field says it itself.
      error={fault && fault !== 'missing' ? t(`reference.fault.${fault}`) : undefined}
      value={value}
      onChange={onChange}
      required={required ?? place === 'path'}
      mono
    />
  )
}

interface Outcome { status: number; phrase: string; ms: number; headers: [string, string][]; requestId: string | undefined; type: string; size: number; text: string | undefined; problem: Problem | undefined }

const HEADERS = ['content-type', 'location', 'retry-after', 'idempotent-replayed', 'etag', 'allow', 'www-authenticate', 'deprecation']
const SHOWN_BYTES_MAX = 200_000
const isText = (type: string): boolean => /^text\/|json|xml|yaml/.test(type)

async function send(listed: Listed, operation: Operation, filled: Filled): Promise<Outcome> {
  const request = new Request(location.origin + API + target(listed, operation, filled), {
    method: listed.method,
    headers: headersOf(operation, filled),
    ...(filled.body === undefined ? {} : { body: filled.body }),
  })
  const begun = performance.now()
  const response = await exchange(request)
  const problem = response.ok ? undefined : await problemOf(response.clone())
  const content = await response.arrayBuffer()
  const type = response.headers.get('content-type') ?? ''
  return {
    status: response.status,
    phrase: response.statusText,
    ms: performance.now() - begun,
    headers: HEADERS.flatMap((name) => { const value = response.headers.get(name); return value === null ? [] : [[name, value] as [string, string]] }),
    requestId: response.headers.get('x-request-id') ?? undefined,
    type,
    size: content.byteLength,
    text: isText(type) ? new TextDecoder().decode(content.slice(0, SHOWN_BYTES_MAX)) : undefined,
    problem,
  }
}

/** Why nobody can try it here. */
function untryable({ needed, method }: Listed, document: Document, operation: Operation): string | undefined {
  if (!needed) return t('reference.try.notForPeople')
  if (isStream(document, operation)) return t('reference.try.stream')
  if (needed.where === 'anybody' && method !== 'GET') return t('reference.try.loggedOut')
  return undefined
}

function Try({ listed, document, operation, filled }: Props & { filled: Filled }) {
  const [outcome, setOutcome] = useState<Outcome | undefined>(undefined)
  const attempt = useAction(async () => {
    setOutcome(undefined)
    setOutcome(await send(listed, operation, filled))
  })
  const reason = untryable(listed, document, operation)
  if (reason) return <p class="try-note">{reason}</p>

  const { needed, method, path } = listed
  const lacks = needed?.permission !== undefined && !(needed.where === 'app' ? can(needed.permission) : canEverywhere(needed.permission))
  const faults = parametersOf(operation).filter((parameter) => faultOf(parameter, filled.values) !== undefined)
  const changes = method !== 'GET' && needed?.permission !== 'read'
  async function start(): Promise<void> {
    const question = {
      title: t('reference.ask', { operation: `${method} ${path}` }),
      text: app.value && needed?.where === 'app' ? t('reference.ask.app', { app: app.value }) : t('reference.ask.text'),
      confirm: t('reference.send'),
      danger: method === 'DELETE' || needed?.dangerous === true,
    }
    if (!changes || (await ask(question))) await attempt.run()
  }
  return (
    <form class="stack" onSubmit={(event) => { event.preventDefault(); void start() }}>
      {lacks && needed?.permission && <p class="try-note warn">{t('reference.try.lacks', { permission: t(`permission.${needed.permission}`) })}</p>}
      <div class="row">
        <Button
          type="submit"
          kind={method === 'DELETE' ? 'danger' : 'primary'}
          icon="play"
          busy={attempt.busy}
          reason={faults.length > 0 ? t('reference.try.fill', { names: faults.map(({ name }) => name).join(', ') }) : undefined}
        >
          {t('reference.send')}
        </Button>
        <span class="soft">{changes ? t('reference.try.changes') : t('reference.try.reads')}</span>
      </div>
      <ErrorBox error={attempt.error} />
      <div role="status">{outcome && <Answered outcome={outcome} />}</div>
    </form>
  )
}

function Answered({ outcome }: { outcome: Outcome }) {
  const { status, phrase, ms, headers, requestId, size, text, problem } = outcome
  return (
    <div class="answered">
      <p class="answered-status"><Badge tone={status < 400 ? 'good' : 'bad'}>{`${status} ${phrase}`.trim()}</Badge> <span class="soft">{duration(ms)} · {bytes(size)}</span></p>
      {problem && <ErrorBox error={new ApiError(problem)} />}
      <Facts facts={[
        requestId !== undefined && !problem?.requestId && [t('error.request'), <Id value={requestId} />],
        ...headers.map(([name, value]) => [name, <code>{value}</code>] as const),
      ]} />
      {size === 0 ? <p class="soft">{t('reference.noBody')}</p>
        : text === undefined ? <p class="soft">{t('reference.binary', { size: bytes(size) })}</p>
        : <><CodeBlock label={t('reference.answer')} value={parsed(text)} />{size > SHOWN_BYTES_MAX && <p class="soft">{t('reference.cut', { shown: bytes(SHOWN_BYTES_MAX), size: bytes(size) })}</p>}</>}
    </div>
  )
}

function parsed(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? value : text
  } catch {
    return text
  }
}

function Snippets({ call, listed, operation, children }: { call: Call; listed: Listed; operation: Operation; children: ComponentChildren }) {
  const variables = proofOf(listed, operation).flatMap(([, value]) => (typeof value === 'string' ? [] : [value.variable]))
  return (
    <div class="panel stack">
      {children}
      {variables.map((variable) => (
        <p key={variable} class="hint">
          <code>{variable}</code>: {t(`reference.variable.${variable as Variable}`)}
          {variable === 'NOROSHI_KEY' && <> <a href={at('keys')}>{t('page.keys')}</a></>}
        </p>
      ))}
      <Tabs
        label={t('reference.snippets')}
        chosen={language.value}
        onChoose={(id) => void (language.value = id as Language)}
        tabs={Object.entries(LANGUAGES).map(([id, label]) => ({
          id, label, body: () => <CodeBlock label={label} value={snippet(id as Language, call)} />,
        }))}
      />
    </div>
  )
}

type Variable = 'NOROSHI_KEY' | 'NOROSHI_DEVICE_TOKEN' | 'NOROSHI_OPERATOR_TOKEN' | 'NOROSHI_VAPID' | 'NOROSHI_SESSION' | 'NOROSHI_CSRF'
