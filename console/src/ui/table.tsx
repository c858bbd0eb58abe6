/** Tables: one page of rows, with a state for loading, error and nothing to show. */

import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'

import type { Load, Pages } from '../app/load'
import { t } from '../i18n'
import { Button } from './button'
import { ErrorBox } from './error'
import { Skeleton } from './skeleton'

export interface Column<T> {
  title: string
  /** Numbers stand right; actions too, and stay visible when a phone scrolls the table. */
  align?: 'end' | 'actions'
  /** Left out on phones. */
  wide?: boolean
  cell(row: T): ComponentChildren
}

interface Props<T> {
  caption: string
  columns: readonly Column<T>[]
  load: Load<T[]> & Partial<Pick<Pages<T>, 'number' | 'previous' | 'next'>>
  rowKey(row: T): string
  /** Shown instead of a table without rows. */
  empty: ComponentChildren
}

export function Table<T>({ caption, columns, load, rowKey, empty }: Props<T>) {
  const rows = load.data
  const box = useRef<HTMLDivElement>(null)
  const hasFocus = box.current?.contains(document.activeElement) === true
  useLayoutEffect(() => {
    // The focused row, or the button of an empty list, is gone: the keyboard continues at the table, or at the title of the page.
    if (hasFocus && document.activeElement === document.body) (box.current ?? document.querySelector<HTMLElement>('#content h1'))?.focus()
  })
  if (load.error && !rows) return <ErrorBox error={load.error} retry={load.reload} />
  if (!rows) return <Skeleton rows={6} />
  const paged = load.previous !== undefined || load.next !== undefined
  if (rows.length === 0 && !paged) return <div ref={box} tabIndex={-1} class="nothing">{empty}</div>
  return (
    <>
      {load.error ? <ErrorBox error={load.error} retry={load.reload} /> : null}
      <div ref={box} class="table-box" role="region" aria-label={caption} tabIndex={0}>
        <table class="table" aria-busy={load.loading}>
          <caption class="hidden">{caption}</caption>
          <thead>
            <tr>{columns.map((column) => <th key={column.title} scope="col" class={styles(column)}>{column.title}</th>)}</tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={rowKey(row)}>
                {columns.map((column) => <td key={column.title} class={styles(column)}>{column.cell(row)}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {paged && (
        <nav class="pager" aria-label={t('pager.label', { caption })}>
          <Button small icon="left" reason={load.previous ? undefined : t('pager.first')} onClick={() => load.previous?.()}>{t('pager.previous')}</Button>
          <span aria-live="polite">{t('pager.page', { number: load.number ?? 1 })}</span>
          <Button small icon="right" reason={load.next ? undefined : t('pager.last')} onClick={() => load.next?.()}>{t('pager.next')}</Button>
        </nav>
      )}
    </>
  )
}

const styles = <T,>({ align, wide }: Column<T>): string | undefined =>
  [align && 'end', align === 'actions' && 'actions', wide && 'wide'].filter(Boolean).join(' ') || undefined
