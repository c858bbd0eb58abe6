/** The fields of a schema, level by level: deeper levels are drawn when the person opens them. */

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'

import { number } from '../app/format'
import { t } from '../i18n'
import { alternatives, core, descriptions, fields, isNullable, type Limit, limits, nameOf, resolve, type Schema, type Schemas, typeText } from '../reference/schema'
import { Prose } from './reference-text'

interface Props { schema: Schema; schemas: Schemas }

export function SchemaView({ schema, schemas }: Props) {
  const members = fields(schema, schemas)
  const options = alternatives(schema, schemas)
  return (
    <>
      {members.length > 0 && (
        <ul class="schema">
          {members.map(({ name, schema: field, required }) => (
            <li key={name}>
              <Described name={name === '*' ? t('reference.anyName') : name} schema={field} schemas={schemas} required={required} />
            </li>
          ))}
        </ul>
      )}
      {options.length > 0 && (
        <div class="schema-options">
          <p class="small-head">{t('reference.oneOf')}</p>
          {options.map((option, index) => (
            <Opened key={index} title={nameOf(option) ?? optionTitle(option, schemas)}><SchemaView schema={option} schemas={schemas} /></Opened>
          ))}
        </div>
      )}
    </>
  )
}

/** An option without a name is called by its required fields. */
const optionTitle = (option: Schema, schemas: Schemas): string =>
  resolve(option, schemas).title ?? (resolve(option, schemas).required?.join(', ') || typeText(option, schemas))

interface DescribedProps extends Props { name: string; required: boolean; description?: string | undefined }

export function Described({ name, schema, schemas, required, description }: DescribedProps) {
  const texts = [...new Set([...(description ? [description] : []), ...descriptions(schema, schemas)])]
  const hasMore = fields(schema, schemas).length > 0 || alternatives(schema, schemas).length > 0
  return (
    <>
      <p class="schema-head">
        <code class="schema-name">{name}</code>
        <span class="schema-type">{typeText(schema, schemas)}{isNullable(resolve(schema, schemas)) && ' | null'}</span>
        {required && <span class="schema-required">{t('reference.required')}</span>}
      </p>
      {texts.map((text) => <Prose key={text} text={text} />)}
      <Limits schema={schema} schemas={schemas} />
      {hasMore && <Opened title={t('reference.fields', { name })}><SchemaView schema={schema} schemas={schemas} /></Opened>}
    </>
  )
}

/** Draws its content only while it is open: schemas refer to each other without end. */
export function Opened({ title, open = false, children }: { title: ComponentChildren; open?: boolean; children: ComponentChildren }) {
  const [shown, setShown] = useState(open)
  return (
    <details open={shown} onToggle={(event) => setShown(event.currentTarget.open)}>
      <summary>{title}</summary>
      {shown && <div class="opened">{children}</div>}
    </details>
  )
}

function span(min: number | undefined, max: number | undefined): string {
  if (min !== undefined && max !== undefined) return min === max ? number(min) : `${number(min)} – ${number(max)}`
  return min !== undefined ? `≥ ${number(min)}` : `≤ ${number(max ?? 0)}`
}

function Limits({ schema, schemas }: Props) {
  const found = limits(schema, schemas)
  const own = core(schema, schemas)
  const example = own.example ?? own.examples?.[0]
  const isSimple = example !== undefined && (typeof example !== 'object' || example === null)
  if (found.length === 0 && !isSimple) return null
  return (
    <ul class="limits">
      {found.map((limit) => <li key={limit.kind}>{t(`reference.limit.${limit.kind}`)} <LimitValue limit={limit} /></li>)}
      {isSimple && <li>{t('reference.limit.example')} <code>{JSON.stringify(example)}</code></li>}
    </ul>
  )
}

function LimitValue({ limit }: { limit: Limit }) {
  if ('values' in limit) return <>{limit.values.map((value) => <code key={value}>{value}</code>)}</>
  if ('text' in limit) return <code>{limit.text}</code>
  return <>{span(limit.min, limit.max)}</>
}
