import { number, percent } from '../app/format'
import { t } from '../i18n'

export function Progress({ label, done, total }: { label: string; done: number; total: number | null }) {
  const known = total !== null && total > 0
  return (
    <div class="progress">
      <div class="progress-text">
        <span>{label}</span>
        <span>{known ? t('progress.of', { done, total }) : number(done)}{known && <strong> {percent(Math.min(1, done / total))}</strong>}</span>
      </div>
      <progress aria-label={label} {...(known ? { max: total, value: Math.min(done, total) } : {})} />
    </div>
  )
}

/** Bars below each other, each with its share of the first: the funnel of a campaign, reasons of errors. */
export interface Bar { label: string; value: number; tone?: 'good' | 'warn' | 'bad' | 'muted' | 'info' }

export function Bars({ label, bars, whole }: { label: string; bars: readonly Bar[]; whole?: number | undefined }) {
  const most = whole ?? Math.max(1, ...bars.map(({ value }) => value))
  return (
    <table class="bars">
      <caption class="hidden">{label}</caption>
      <tbody>
        {bars.map((bar) => (
          <tr key={bar.label}>
            <th scope="row">{bar.label}</th>
            <td class="bar-cell" aria-hidden="true">
              <svg class={`bar ${bar.tone ?? 'accent'}`} viewBox="0 0 100 1" preserveAspectRatio="none"><rect width={Math.min(100, bar.value / Math.max(1, most) * 100)} height="1" /></svg>
            </td>
            <td class="end">{number(bar.value)}</td>
            <td class="end soft">{percent(bar.value / Math.max(1, most))}</td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}
