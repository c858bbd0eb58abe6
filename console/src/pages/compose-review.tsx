/** The last step of the composer: what is missing, how many it reaches and until when, approval, and start. */

import { body, provider, type Schemas, session as api } from '../api/client'
import { perform, useAction } from '../app/action'
import { number } from '../app/format'
import { useLoad } from '../app/load'
import { go } from '../app/router'
import { at, refusal, session } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Section } from '../ui/head'
import { When } from '../ui/when'
import { type Step, stepOf } from './draft'

type Campaign = Schemas['Campaign']
type Estimate = Schemas['CampaignEstimate']
type Size = Schemas['EstimatedSize']

interface Props { campaign: Campaign; open?: ((step: Step) => void) | undefined; reload(): void; before?: (() => Promise<Campaign | undefined>) | undefined }

export function Review({ campaign, open, reload, before }: Props) {
  // Each revision has an estimate of its own; an answer for an older one comes too late.
  const count = useLoad(`estimate ${campaign.id} ${campaign.revision}`, () => body(provider.POST('/v1/campaigns/{id}/estimate', { params: { path: { id: campaign.id } } })))
  const estimate = count.data
  const problems = campaign.problems ?? []
  return (
    <>
      {problems.length > 0 && (
        <Section title={t('review.missing')}>
          <ul class="problems">
            {problems.map(({ field, detail }) => (
              <li key={`${field ?? ''} ${detail}`}>
                {field && <code>{field}</code>} {detail}
                {open && <Button small kind="quiet" onClick={() => open(stepOf(field))}>{t('review.fix', { step: t(`step.${stepOf(field)}`) })}</Button>}
              </li>
            ))}
          </ul>
        </Section>
      )}
      <Section title={t('review.estimate')} actions={<Button small busy={count.loading} onClick={count.reload}>{t('review.again')}</Button>}>
        <ErrorBox error={count.error} />
        {estimate && <Estimated estimate={estimate} />}
      </Section>
      <Approval campaign={campaign} estimate={estimate} reload={reload} />
      <StartButton campaign={campaign} estimate={estimate} before={before} reload={reload} />
    </>
  )
}

const sized = ({ value, low, high }: Size): string =>
  low === high ? number(value) : t('review.about', { value: number(value), low: number(low), high: number(high) })

function Estimated({ estimate }: { estimate: Estimate }) {
  const { forecast } = estimate
  return (
    <div class="panel reach" role="status">
      <p class="hint">{estimate.exact ? t('review.exact') : t('review.sampled', { examined: number(estimate.examined) })}</p>
      <Facts facts={[
        [t('page.devices'), <strong>{sized(estimate.devices)}</strong>],
        [t('compose.users'), sized(estimate.users)],
        ...Object.entries(estimate.by_service).map(([service, size]) => [tValue('service', service), sized(size)] as const),
        [t('compose.noToken'), sized(estimate.no_push_token)],
        estimate.suspect.high > 0 && [t('device.suspect'), sized(estimate.suspect)],
        ...estimate.by_locale.map(({ locale, devices }) => [locale === null ? t('review.noLocale') : t('review.locale', { locale }), sized(devices)] as const),
        estimate.other_locales.high > 0 && [t('review.otherLocales'), sized(estimate.other_locales)],
        [t('review.starts'), <When at={forecast.starts_at} exact />],
        [t('review.ends'), forecast.ends_at === null ? t('review.unknown') : <When at={forecast.ends_at} exact />],
        [t('campaign.rate'), forecast.rate_per_second === null ? t('review.rate.unknown') : `${number(forecast.rate_per_second)}/s · ${t(`review.rate.${forecast.rate_from}`, { count: forecast.measured_campaigns })}`],
      ]} />
      <p class="hint">{t('review.assumes')}</p>
      {forecast.steps.length > 1 && (
        <details>
          <summary>{t('review.steps', { count: forecast.steps.length })}</summary>
          <Facts facts={forecast.steps.map(({ due_at, devices }) => [due_at, <><When at={due_at} exact /> · {number(devices)}</>] as const)} />
        </details>
      )}
      <details>
        <summary>{t('review.sample', { count: estimate.sample.length })}</summary>
        <div class="table-box" role="region" aria-label={t('review.sampleTable')} tabIndex={0}>
          <table class="table">
            <thead><tr><th scope="col">{t('kind.device')}</th><th scope="col">{t('kind.user')}</th><th scope="col">{t('notices.locale')}</th><th scope="col">{t('review.zone')}</th><th scope="col">{t('review.service')}</th></tr></thead>
            <tbody>
              {estimate.sample.map((one) => (
                <tr key={one.device}>
                  <td><a href={at('device', { id: one.device })}>{one.device}</a></td>
                  <td>{one.user === null ? '–' : <a href={at('user', { id: one.user })}>{one.user}</a>}</td>
                  <td>{one.locale ?? '–'}</td>
                  <td>{one.timezone ?? '–'}</td>
                  <td>{one.service === null ? '–' : tValue('service', one.service)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </div>
  )
}

function Approval({ campaign, estimate, reload }: { campaign: Campaign; estimate: Estimate | undefined; reload(): void }) {
  const { approval, id, revision } = campaign
  if (!approval && !estimate?.needs_approval) return null
  const email = session.value?.person.email
  const isOwn = email !== undefined && campaign.authors.includes(email)
  const path = { params: { path: { id } } }
  const change = async (work: () => Promise<unknown>, done: string): Promise<void> => {
    await perform(work, done)
    reload()
  }
  return (
    <Section title={t('review.approval')}>
      <p>
        {approval
          ? <><Badge tone="good">{t('review.approved')}</Badge> {t('review.approvedBy', { by: approval.by })} <When at={approval.at} /></>
          : <><Badge tone="warn">{t('review.unapproved')}</Badge> {t('review.approvalNeeded', { count: estimate?.approval_above ?? 0 })}</>}
      </p>
      <div class="row">
        {approval
          ? <Button reason={refusal('publish')} onClick={() => void change(() => api.DELETE('/v1/campaigns/{id}/approve', path), t('review.withdrawn'))}>{t('review.withdraw')}</Button>
          : <Button kind="primary" reason={refusal('publish') ?? (isOwn ? t('review.own') : campaign.complete ? undefined : t('review.incomplete'))} onClick={() => void change(() => api.POST('/v1/campaigns/{id}/approve', { ...path, body: { revision } }), t('review.approved'))}>{t('review.approve')}</Button>}
      </div>
    </Section>
  )
}

function StartButton({ campaign, estimate, before, reload }: { campaign: Campaign; estimate: Estimate | undefined; before: Props['before']; reload(): void }) {
  const start = useAction(async () => {
    const present = before ? await before() : campaign
    if (!present) return
    const text = estimate ? t('campaign.start.text', { count: estimate.devices.value }) : t('campaign.start.unknown')
    if (!(await ask({ title: t('campaign.start'), text, confirm: t('campaign.start'), danger: false }))) return
    try {
      await provider.POST('/v1/campaigns/{id}/start', { params: { path: { id: present.id }, query: { revision: present.revision } } })
    } catch (error) {
      reload()
      throw error
    }
    go(at('campaign', { id: present.id }))
    reload()
  })
  const waits = estimate?.needs_approval && !campaign.approval ? t('review.waits') : undefined
  return (
    <>
      <ErrorBox error={start.error} />
      <div class="row start">
        <Button kind="primary" icon="play" busy={start.busy} reason={refusal('publish') ?? (campaign.complete ? waits : t('review.incomplete'))} onClick={() => void start.run()}>{t('campaign.start')}</Button>
      </div>
    </>
  )
}
