/** Creates or changes an experiment. */

import { useState } from 'preact/hooks'

import { admin, type Schemas } from '../api/client'
import { useAction } from '../app/action'
import { fromInput, toInput } from '../app/local-time'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { TextArea, TextField } from '../ui/field'
import { parseJson } from './json'

interface Variant { name: string; weight: string; data: string }

const textOf = (data: unknown): string => (data === undefined || data === null ? '' : JSON.stringify(data))

interface Props { app: string; experiment: Schemas['Experiment'] | undefined; onClose(saved: boolean): void }

export function ExperimentForm({ app, experiment, onClose }: Props) {
  const [name, setName] = useState(experiment?.name ?? '')
  const [description, setDescription] = useState(experiment?.description ?? '')
  const [condition, setCondition] = useState(experiment?.audience.condition ?? '')
  const [starts, setStarts] = useState(toInput(experiment?.starts_at))
  const [ends, setEnds] = useState(toInput(experiment?.ends_at))
  const [variants, setVariants] = useState<readonly Variant[]>(
    experiment?.variants.map((variant) => ({ name: variant.name, weight: String(variant.weight), data: textOf(variant.data) })) ??
    [{ name: 'control', weight: '50', data: '' }, { name: 'treatment', weight: '50', data: '' }],
  )
  const amend = (index: number, change: Partial<Variant>): void =>
    setVariants(variants.map((variant, here) => here === index ? { ...variant, ...change } : variant))

  const save = useAction(async () => {
    const startsAt = fromInput(starts)
    const endsAt = fromInput(ends)
    const devices = experiment?.audience.devices
    await admin.PUT('/v1/apps/{app}/experiments/{name}', {
      params: { path: { app, name } },
      body: {
        ...(description ? { description } : {}),
        variants: variants.map((variant) => ({
          name: variant.name,
          weight: Number(variant.weight),
          ...(variant.data.trim() ? { data: parseJson(variant.data) as never } : {}),
        })),
        ...(startsAt ? { starts_at: startsAt } : {}),
        ...(endsAt ? { ends_at: endsAt } : {}),
        ...(condition || devices ? { audience: { ...(condition ? { condition } : {}), ...(devices ? { devices } : {}) } } : {}),
        ...(experiment ? { overrides: experiment.overrides, killed: experiment.killed } : {}),
      },
    })
  })
  return (
    <FormDialog title={experiment ? t('experiments.change') : t('experiments.new')} wide submit={t('action.save')} busy={save.busy} error={save.error} onClose={() => onClose(false)} onSubmit={() => void save.run().then((done) => done && onClose(true))}>
      {!experiment && <TextField label={t('column.name')} hint={t('experiments.nameHint')} value={name} onChange={setName} required mono autofocus />}
      <TextField label={t('experiments.description')} value={description} onChange={setDescription} />
      <fieldset class="group">
        <legend>{t('experiments.variants')}</legend>
        {variants.map((variant, index) => (
          <div class="field-row" key={index}>
            <TextField label={t('column.name')} value={variant.name} onChange={(value) => amend(index, { name: value })} required mono />
            <TextField label={t('experiments.weight')} type="number" value={variant.weight} onChange={(value) => amend(index, { weight: value })} required />
            <TextField label={t('experiments.data')} value={variant.data} onChange={(value) => amend(index, { data: value })} mono />
            <Button small kind="quiet" icon="close" label={t('action.removeNamed', { name: variant.name })} onClick={() => setVariants(variants.filter((_, here) => here !== index))} />
          </div>
        ))}
        <Button small icon="plus" onClick={() => setVariants([...variants, { name: '', weight: '0', data: '' }])}>{t('experiments.addVariant')}</Button>
      </fieldset>
      <TextArea label={t('experiments.condition')} hint={t('experiments.conditionHint')} value={condition} onChange={setCondition} rows={2} mono />
      <div class="field-row">
        <TextField label={t('experiments.starts')} type="datetime-local" hint={t('field.now')} value={starts} onChange={setStarts} />
        <TextField label={t('experiments.ends')} type="datetime-local" hint={t('field.never')} value={ends} onChange={setEnds} />
      </div>
    </FormDialog>
  )
}
