/** Icons of 16 × 16, drawn with one stroke. They accompany text, so they are hidden from screen readers. */

const PATHS = {
  pulse: 'M1.5 8.5h3l2-5.5 3 10 2-4.5h3',
  search: 'M7 12.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11ZM11 11l3.5 3.5',
  device: 'M5 1.5h6a1 1 0 0 1 1 1v11a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1v-11a1 1 0 0 1 1-1ZM7 12.5h2',
  topic: 'M6 2 4.5 14M11.5 2 10 14M2.5 5.5h12M1.5 10.5h12',
  node: 'M2 2.5h12v4.5H2zM2 9h12v4.5H2zM4.5 4.750h.01M4.5 11.250h.01',
  campaign: 'M2 6.5v3h2.5L11 13V3L4.5 6.5zM13 6.5v3M5.5 10l1 3.5',
  activity: 'M8 4.5V8l2.5 1.5M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13Z',
  experiment: 'M6 1.5h4M6.5 1.5V6L2.5 13a1 1 0 0 0 .9 1.5h9.200a1 1 0 0 0 .9-1.5L9.5 6V1.5M4.5 10h7',
  notice: 'M8 1.5 15 14H1zM8 6v4M8 12h.01',
  key: 'M5 13.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM7.5 7.5l6-6M11 4l2.5 2.5',
  send: 'M14.5 1.5 7 9M14.5 1.5 10 14.5 7 9 1.5 6z',
  rule: 'M8 1.5 13.5 4v4c0 3.5-2.5 5.5-5.5 6.5C5 13.5 2.5 11.5 2.5 8V4zM5.5 8l2 2 3-3.5',
  quota: 'M2 12.5a6.5 6.5 0 1 1 12 0M8 10l3-4M2 12.5h12',
  people: 'M6 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM1.5 13.5c0-2.5 2-4 4.5-4s4.5 1.5 4.5 4M11 3a2.5 2.5 0 0 1 0 4.5M12 9.700c1.600.6 2.5 2 2.5 3.800',
  audit: 'M3.5 1.5h9v13h-9zM6 5h4M6 8h4M6 11h2',
  settings: 'M2 4.5h5M11 4.5h3M2 11.5h3M9 11.5h5M9 6.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM7 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4Z',
  channel: 'M8 9a1 1 0 1 0 0-2 1 1 0 0 0 0 2ZM5 11a4.2 4.2 0 0 1 0-6M11 5a4.2 4.2 0 0 1 0 6M3 13a7 7 0 0 1 0-10M13 3a7 7 0 0 1 0 10',
  code: 'M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5M9 3 7 13',
  menu: 'M2 4h12M2 8h12M2 12h12',
  close: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  check: 'M3 8.5 6.5 12 13 4.5',
  down: 'M4 6l4 4 4-4',
  up: 'M4 10l4-4 4 4',
  left: 'M10 3.5 5.5 8l4.5 4.5',
  right: 'M6 3.5 10.5 8 6 12.5',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
  more: 'M3 8h.01M8 8h.01M13 8h.01',
  plus: 'M8 3v10M3 8h10',
  refresh: 'M13.5 8a5.5 5.5 0 1 1-1.600-3.900M13.5 1.5v3h-3',
  user: 'M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM2.5 14.5c0-3 2.5-4.5 5.5-4.5s5.5 1.5 5.5 4.5',
  globe: 'M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM1.5 8h13M8 1.5c4 4 4 9 0 13-4-4-4-9 0-13Z',
  pause: 'M5.5 3v10M10.5 3v10',
  play: 'M4.5 2.5v11l9-5.5z',
  stop: 'M3.5 3.5h9v9h-9z',
  bell: 'M3.5 11.5c1-1 1-2.5 1-4.5a3.5 3.5 0 0 1 7 0c0 2 0 3.5 1 4.5zM6.5 13.5a1.5 1.5 0 0 0 3 0',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  )
}
