/** The composer: audience, message, schedule, review. Each change is saved as a draft, which several people may write. */

import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { APP_HEADER } from '../api/transport'
import { useAction } from '../app/action'
import { useLoad } from '../app/load'
import { amend, place } from '../app/router'
import { app, at, refusal } from '../app/session'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { ErrorBox } from '../ui/error'
import { Head } from '../ui/head'
import { Segmented } from '../ui/segmented'
import { Skeleton } from '../ui/skeleton'
import { toastError } from '../ui/toast'
import { When } from '../ui/when'
import { Autosave, type SaveState } from './autosave'
import { AudienceFields, MessageFields, ScheduleFields } from './compose-fields'
import { PersonValues, rendered, type Viewer } from './compose-person'
import { Review } from './compose-review'
import { type Definition, type Draft, EMPTY, fromDefinition, STEPS, toDefinition, withoutNulls } from './draft'
import { Preview } from './preview'

type Campaign = Schemas['Campaign']

const read = (id: string): Promise<Campaign> => body(provider.GET('/v1/campaigns/{id}', { params: { path: { id } } }))

export default function NewCampaign() {
  const [opened] = useState(() => place.value.query.get('id') ?? undefined)
  const load = useLoad(`compose ${app.value} ${opened ?? ''}`, async () => (opened ? read(opened) : undefined))
  if (opened && !load.data) return <><Head kind={t('kind.campaign')} title={t('campaigns.new')} />{load.error ? <ErrorBox error={load.error} retry={load.reload} /> : <Skeleton rows={8} />}</>
  return <Composer key={`${app.value} ${opened ?? ''}`} campaign={load.data} />
}

function Composer({ campaign: first }: { campaign: Campaign | undefined }) {
  const [, redraw] = useState(0)
  const [draft, setDraft] = useState<Draft>(first?.definition ? fromDefinition(first.definition) : EMPTY)
  const [viewer, choose] = useState<Viewer | undefined>(undefined)
  const here = useRef(true)
  const autosave = useMemo(() => {
    // The last save may come when another app is open.
    const headers = { [APP_HEADER]: app.value ?? '' }
    const saver = {
      create: async (content: Record<string, unknown>) => {
        // A draft may lack what a request has.
        const made = await body(provider.POST('/v1/campaigns', { headers, params: { query: { draft: true } }, body: withoutNulls(content) as never }))
        // The answer may come when another page is open.
        if (here.current) amend({ id: (made as Campaign).id })
        return made as Campaign
      },
      change: (id: string, revision: number, content: Record<string, unknown>) =>
        body(provider.PATCH('/v1/campaigns/{id}', { headers, params: { path: { id } }, body: { ...content, revision } })),
    }
    const made = new Autosave<Campaign>(saver, () => redraw((n) => n + 1))
    if (first) made.begin(first)
    return made
  }, [])
  useEffect(() => () => {
    here.current = false
    void autosave.flush().then(() => {
      if (autosave.error) toastError(autosave.error)
    })
  }, [])
  useEffect(() => {
    const leave = (event: BeforeUnloadEvent): void => {
      if (autosave.state === 'new' || autosave.state === 'saved') return
      void autosave.flush()
      event.preventDefault()
    }
    addEventListener('beforeunload', leave)
    return () => removeEventListener('beforeunload', leave)
  }, [])

  const saved = autosave.saved
  const base = (): Definition => saved?.definition ?? {}
  const reason = refusal('publish') ?? (saved && saved.state !== 'draft' && saved.state !== 'scheduled' ? t('compose.started') : undefined)
  const set = (change: Partial<Draft>): void => {
    const next = { ...draft, ...change }
    setDraft(next)
    if (!reason) autosave.write(toDefinition(next, base()))
  }
  const take = async (): Promise<void> => {
    if (!saved) return
    const theirs = await read(saved.id)
    autosave.begin(theirs)
    setDraft(fromDefinition(theirs.definition ?? {}))
  }
  const keep = async (): Promise<void> => {
    if (saved) await autosave.overwrite((await read(saved.id)).revision)
  }
  const refresh = async (): Promise<void> => {
    if (!saved) return
    const present = await read(saved.id)
    // What a person has typed meanwhile is newer.
    if (autosave.state === 'saved') autosave.begin(present)
  }
  const step = STEPS.find((one) => one === place.value.query.get('step')) ?? 'audience'
  const open = (to: (typeof STEPS)[number]): void => {
    void autosave.flush()
    amend({ step: to })
  }
  const next = STEPS[STEPS.indexOf(step) + 1]
  /** The next Tab leads to the first field of the next step. */
  const fields = useRef<HTMLDivElement>(null)
  const shown = rendered(draft, viewer)
  return (
    <>
      <Head kind={t('kind.campaign')} title={draft.name || t('campaigns.new')} text={t('compose.lead')}>
        {saved && <a class="button plain" href={at('campaign', { id: saved.id })}>{t('compose.page')}</a>}
      </Head>
      {reason && <p class="notice-line">{reason}</p>}
      <SaveLine state={autosave.state} saved={saved} error={autosave.error} again={() => void autosave.flush()} />
      {autosave.state === 'conflict' && <Conflict saved={saved} take={take} keep={keep} />}
      <Segmented label={t('compose.steps')} value={step} onChange={open} options={STEPS.map((value, index) => ({ value, label: `${index + 1}. ${t(`step.${value}`)}` }))} />
      <div class="compose">
        <div class="compose-fields" ref={fields} tabIndex={-1}>
          {step === 'audience' && <AudienceFields draft={draft} set={set} />}
          {step === 'message' && <><MessageFields draft={draft} set={set} /><PersonValues draft={draft} id={saved?.id} viewer={viewer} choose={choose} /></>}
          {step === 'schedule' && <ScheduleFields draft={draft} set={set} />}
          {step === 'review' && (saved && autosave.state === 'saved'
            ? <Review campaign={saved} open={open} reload={() => void refresh().catch(toastError)} before={async () => { await autosave.flush(); return autosave.state === 'saved' ? autosave.saved : undefined }} />
            : <p class="soft">{saved ? t('compose.saving') : t('compose.empty')}</p>)}
          {next && <div class="row"><Button kind="primary" onClick={() => { open(next); fields.current?.focus() }}>{t('compose.next', { step: t(`step.${next}`) })}</Button></div>}
        </div>
        <aside class="compose-preview" aria-label={t('preview.title')}>
          <Preview title={shown.title} text={shown.text} url={draft.url} of={viewer && [viewer.user, viewer.device?.locale].filter(Boolean).join(' · ')} />
        </aside>
      </div>
    </>
  )
}

function SaveLine({ state, saved, error, again }: { state: SaveState; saved: Campaign | undefined; error: unknown; again(): void }) {
  return (
    <>
      <p class={`save-line ${state}`} role="status">
        {t(`save.${state}`)}
        {state === 'saved' && saved && <> <small class="soft">{t('compose.revision', { revision: saved.revision })} · <When at={saved.edited_at ?? saved.created_at} exact /></small></>}
        {state === 'failed' && <> <Button small onClick={again}>{t('save.again')}</Button></>}
      </p>
      {state === 'failed' && <ErrorBox error={error} />}
    </>
  )
}

function Conflict({ saved, take, keep }: { saved: Campaign | undefined; take(): Promise<void>; keep(): Promise<void> }) {
  const theirs = useLoad(`conflict ${saved?.id ?? ''} ${saved?.revision ?? 0}`, async () => (saved ? read(saved.id) : undefined))
  const act = useAction((work: () => Promise<void>) => work())
  return (
    <section class="panel conflict" role="alert">
      <h2>{t('conflict.title')}</h2>
      <p>{theirs.data ? t('conflict.by', { by: theirs.data.edited_by ?? '–', revision: theirs.data.revision }) : t('conflict.text')} {theirs.data?.edited_at && <When at={theirs.data.edited_at} exact />}</p>
      <ErrorBox error={act.error ?? theirs.error} />
      <div class="row">
        <Button kind="primary" busy={act.busy} onClick={() => void act.run(take)}>{t('conflict.take')}</Button>
        <Button kind="danger" busy={act.busy} onClick={() => void act.run(keep)}>{t('conflict.keep')}</Button>
      </div>
    </section>
  )
}
