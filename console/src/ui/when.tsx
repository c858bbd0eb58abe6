import { date, dateTime, millis, type Moment, relative, relativeDay } from '../app/format'

/** A moment as people speak of it; the exact time is in the title. */
export function When({ at, exact = false }: { at: Moment | null | undefined; exact?: boolean }) {
  if (at === null || at === undefined) return <span class="none">–</span>
  return (
    <time dateTime={new Date(millis(at)).toISOString()} title={exact ? relative(at) : dateTime(at, true)}>
      {exact ? dateTime(at) : relative(at)}
    </time>
  )
}

/** A day in UTC. */
export function Day({ day, none }: { day: string | null | undefined; none: string }) {
  if (day === null || day === undefined) return <span class="none">{none}</span>
  return <time dateTime={day} title={`${date(day)} UTC`}>{relativeDay(day)}</time>
}
