/** Topic rules: who may subscribe and publish. The first rule that fits decides. */

import { useRef, useState } from 'preact/hooks'

import { admin, body, type Schemas } from '../api/client'
import { isMissing } from '../api/error'
import { perform, useAction } from '../app/action'
import { useLoad } from '../app/load'
import { app, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge, type Tone } from '../ui/badge'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Select, TextField } from '../ui/field'
import { Head, Section } from '../ui/head'
import { Skeleton } from '../ui/skeleton'

type Rules = Schemas['TopicRules']
type Rule = Schemas['TopicRule']
const KINDS = ['subscribe', 'publish'] as const
const ALLOW = ['anyone', 'token', 'server', 'ask'] as const
const TONES: Record<Rule['allow'], Tone> = { anyone: 'good', token: 'info', server: 'bad', ask: 'warn' }

export default function TopicRules() {
  const name = app.value ?? ''
  const path = { params: { path: { app: name } } }
  const [editing, setEditing] = useState(false)
  const load = useLoad(`rules ${name}`, async (): Promise<Rules | null> => {
    try {
      return await body(admin.GET('/v1/apps/{app}/topic-rules', path))
    } catch (error) {
      if (isMissing(error)) return null
      throw error
    }
  })
  const rules = load.data
  const reason = refusal('manage')

  async function remove(): Promise<void> {
    if (!(await ask({ title: t('rules.remove'), text: t('rules.remove.text'), confirm: t('rules.remove') }))) return
    if (await perform(() => admin.DELETE('/v1/apps/{app}/topic-rules', path), t('rules.removed'))) load.reload()
  }

  return (
    <>
      <Head title={t('page.rules')} text={t('rules.lead')}>
        {rules && <Button kind="primary" reason={reason} onClick={() => setEditing(true)}>{t('action.change')}</Button>}
        {rules && <Button kind="danger" reason={reason} onClick={() => void remove()}>{t('rules.remove')}</Button>}
      </Head>
      <ErrorBox error={load.error} retry={load.reload} />
      {rules === undefined && !load.error && <Skeleton rows={4} />}
      {rules === null && <Empty icon="rule" title={t('rules.empty')} text={t('rules.empty.text')}><Button kind="primary" icon="plus" reason={reason} onClick={() => setEditing(true)}>{t('rules.create')}</Button></Empty>}
      {rules && KINDS.map((kind) => <RuleList key={kind} kind={kind} rules={rules[kind] ?? []} />)}
      {rules?.ask && (
        <Section title={t('rules.ask')}>
          <Facts facts={[
            [t('credential.url'), <code>{rules.ask.url}</code>],
            [t('credential.secret'), rules.ask.secret_set ? t('rules.secretSet') : t('rules.noSecret')],
            [t('rules.timeout'), rules.ask.timeout],
            [t('rules.cache'), rules.ask.expires_in],
          ]} />
        </Section>
      )}
      {editing && <Form app={name} rules={rules ?? {}} onClose={(saved) => { setEditing(false); if (saved) load.reload() }} />}
    </>
  )
}

function RuleList({ kind, rules }: { kind: (typeof KINDS)[number]; rules: readonly Rule[] }) {
  return (
    <Section title={t(`rules.${kind}`)}>
      {rules.length === 0 ? <p class="soft">{t('rules.none')}</p> : (
        <ol class="rules">
          {rules.map((rule, index) => <li key={index}><code>{rule.topic}</code><Badge tone={TONES[rule.allow]}>{tValue('allow', rule.allow)}</Badge></li>)}
        </ol>
      )}
    </Section>
  )
}

function Form({ app: name, rules, onClose }: { app: string; rules: Rules; onClose(saved: boolean): void }) {
  const [lists, setLists] = useState<Record<(typeof KINDS)[number], readonly Rule[]>>({
    subscribe: rules.subscribe ?? [{ topic: '#', allow: 'anyone' }],
    publish: rules.publish ?? [{ topic: '#', allow: 'server' }],
  })
  const [url, setUrl] = useState(rules.ask?.url ?? '')
  const [secret, setSecret] = useState('')
  const save = useAction(() => admin.PUT('/v1/apps/{app}/topic-rules', {
    params: { path: { app: name } },
    body: {
      subscribe: [...lists.subscribe],
      publish: [...lists.publish],
      ...(url ? {
        ask: {
          url,
          ...(secret ? { secret } : {}),
          ...(rules.ask?.timeout ? { timeout: rules.ask.timeout } : {}),
          ...(rules.ask?.expires_in ? { expires_in: rules.ask.expires_in } : {}),
        },
      } : {}),
    },
  }))
  return (
    <FormDialog title={t('page.rules')} wide submit={t('action.save')} busy={save.busy} error={save.error} onClose={() => onClose(false)} onSubmit={() => void save.run().then((done) => done && onClose(true))}>
      <p class="soft">{t('rules.hint', { variables: '{user}, {device}, {claim:name}' })}</p>
      {KINDS.map((kind) => <RuleFields key={kind} kind={kind} rules={lists[kind]} onChange={(changed) => setLists({ ...lists, [kind]: changed })} />)}
      <TextField label={t('rules.askUrl')} type="url" hint={t('field.optional')} value={url} onChange={setUrl} mono />
      {url && <TextField label={t('credential.secret')} hint={t('rules.secretHint')} value={secret} onChange={setSecret} mono />}
    </FormDialog>
  )
}

interface FieldsProps { kind: (typeof KINDS)[number]; rules: readonly Rule[]; onChange(rules: readonly Rule[]): void }

function RuleFields({ kind, rules, onChange }: FieldsProps) {
  const amend = (index: number, change: Partial<Rule>): void => onChange(rules.map((rule, here) => here === index ? { ...rule, ...change } : rule))
  const box = useRef<HTMLFieldSetElement>(null)
  function up(index: number): void {
    // The focus follows the rule.
    const row = box.current?.querySelectorAll('.field-row')[index - 1]
    row?.querySelector<HTMLElement>(index > 1 ? 'button' : 'input')?.focus()
    const moved = rules[index]
    const rest = rules.filter((_, here) => here !== index)
    if (moved) onChange([...rest.slice(0, index - 1), moved, ...rest.slice(index - 1)])
  }
  return (
    <fieldset ref={box} class="group">
      <legend>{t(`rules.${kind}`)}</legend>
      {rules.map((rule, index) => (
        <div class="field-row" key={index}>
          <TextField label={t('kind.topic')} value={rule.topic} onChange={(topic) => amend(index, { topic })} required mono />
          <Select label={t('rules.allow')} value={rule.allow} onChange={(allow) => amend(index, { allow })} options={ALLOW.map((value) => ({ value, label: tValue('allow', value) }))} />
          {index > 0 && <Button small kind="quiet" label={t('rules.up', { topic: rule.topic })} icon="up" onClick={() => up(index)} />}
          <Button small kind="quiet" icon="close" label={t('action.removeNamed', { name: rule.topic })} onClick={() => onChange(rules.filter((_, here) => here !== index))} />
        </div>
      ))}
      <Button small icon="plus" onClick={() => onChange([...rules, { topic: '', allow: 'token' }])}>{t('rules.add')}</Button>
    </fieldset>
  )
}
