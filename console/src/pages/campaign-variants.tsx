/** Variants of a campaign with 95 % intervals, and what the difference means in a sentence. */

import type { Schemas } from '../api/client'
import { number, percent } from '../app/format'
import { t } from '../i18n'
import { Badge } from '../ui/badge'
import { Section } from '../ui/head'

type Experiment = NonNullable<Schemas['Campaign']['experiment']>
type Report = Schemas['CampaignVariantReport']
type Rate = Report['opened']

export function Variants({ experiment }: { experiment: Experiment }) {
  return (
    <Section title={t('variants.title', { name: experiment.name })}>
      <div class="table-box" role="region" aria-label={t('variants.title', { name: experiment.name })} tabIndex={0}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">{t('variants.variant')}</th>
              <th scope="col" class="end">{t('variants.targeted')}</th>
              <th scope="col">{t('variants.delivered')}</th>
              <th scope="col">{t('variants.opened')}</th>
              <th scope="col">{t('variants.difference')}</th>
            </tr>
          </thead>
          <tbody>
            {experiment.variants.map((variant) => (
              <tr key={variant.name}>
                <td><code>{variant.name}</code> {variant.name === experiment.control && <Badge tone="info">{t('variants.control')}</Badge>} {variant.held_out && <Badge>{t('variants.heldOut')}</Badge>}</td>
                <td class="end">{number(variant.targeted)}</td>
                <td><RateCell rate={variant.delivered} /></td>
                <td><RateCell rate={variant.opened} /></td>
                <td>{difference(variant)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <ul class="sentences">
        {experiment.variants.filter(({ name }) => name !== experiment.control).map((variant) => <li key={variant.name}>{meaning(variant, experiment.control, experiment.variants.find(({ name }) => name === experiment.control)?.targeted ?? 0)}</li>)}
      </ul>
    </Section>
  )
}

/** The rate, its interval as a bar from 0 to 100 %, and the interval in figures. */
function RateCell({ rate: { count, rate, low, high } }: { rate: Rate }) {
  if (rate === null || low === null || high === null) return <span class="soft">{number(count)}</span>
  return (
    <div class="interval">
      <strong>{percent(rate)}</strong>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect class="interval-track" width="100" height="8" />
        <rect class="interval-range" x={low * 100} width={Math.max(0.5, (high - low) * 100)} height="8" />
        <rect class="interval-mark" x={Math.max(0, rate * 100 - 0.4)} width="0.8" height="8" />
      </svg>
      <small class="soft">{percent(low)} – {percent(high)}</small>
    </div>
  )
}

/** In percentage points, with its interval. */
function difference({ against_control: against }: Report): string {
  if (!against?.opened) return '–'
  const { difference: value, low, high } = against.opened
  const points = (share: number): string => `${share > 0 ? '+' : ''}${number(Math.round(share * 1000) / 10)}`
  return `${points(value)} (${points(low)} … ${points(high)})`
}

/** Below it an interval says little, whatever the difference. */
const FEW = 30

function meaning({ name, targeted, held_out: heldOut, against_control: against }: Report, control: string, controlTargeted: number): string {
  if (heldOut) return t('variants.means.heldOut', { name })
  if (!against?.opened) return t('variants.means.nothing', { name })
  if (Math.min(targeted, controlTargeted) < FEW) return t('variants.means.few', { name, count: Math.min(targeted, controlTargeted) })
  const { difference, low, high, distinguishable } = against.opened
  const values = { name, control, difference: percent(Math.abs(difference)), low: percent(low), high: percent(high) }
  if (!distinguishable) return t('variants.means.same', values)
  return difference > 0 ? t('variants.means.more', values) : t('variants.means.fewer', values)
}
