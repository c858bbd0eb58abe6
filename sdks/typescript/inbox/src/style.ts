/** The bell's style sheet. Custom properties without an underscore are for applications. */

const DARK = `
  --_background: var(--noroshi-background, #1d2025);
  --_text: var(--noroshi-text, #eceef1);
  --_muted: var(--noroshi-muted, #a4abb6);
  --_border: var(--noroshi-border, #383d46);
  --_hover: var(--noroshi-hover, #292e36);
  --_accent: var(--noroshi-accent, #7cb0ff);
  --_badge: var(--noroshi-badge, #e5484d);
  --_error: var(--noroshi-error, #ff9592);
  --_shadow: var(--noroshi-shadow, 0 8px 28px #000a);
  color-scheme: dark;`

const SHEET = `
.noroshi-inbox {
  --_background: var(--noroshi-background, #fff);
  --_text: var(--noroshi-text, #1d2025);
  --_muted: var(--noroshi-muted, #5d6673);
  --_border: var(--noroshi-border, #dfe3e8);
  --_hover: var(--noroshi-hover, #f3f5f8);
  --_accent: var(--noroshi-accent, #1a5fd0);
  --_badge: var(--noroshi-badge, #d1242f);
  --_error: var(--noroshi-error, #b3121d);
  --_shadow: var(--noroshi-shadow, 0 8px 28px #0003);
  --_radius: var(--noroshi-radius, 12px);
  color-scheme: light;
  position: relative;
  display: inline-block;
  font: var(--noroshi-font, 400 14px/1.45 system-ui, sans-serif);
  text-align: start;
}
.noroshi-inbox[data-theme=dark] {${DARK}
}
@media (prefers-color-scheme: dark) {
.noroshi-inbox[data-theme=auto] {${DARK}
}
}
.noroshi-inbox * { box-sizing: border-box; margin: 0; letter-spacing: normal; text-transform: none; }
.noroshi-inbox button, .noroshi-inbox a {
  appearance: none; border: 0; padding: 0; background: none; color: inherit; font: inherit; text-align: inherit;
  text-decoration: none; cursor: pointer; min-width: 0; min-height: 0; box-shadow: none;
}
.noroshi-inbox :focus-visible { outline: 2px solid var(--_accent); outline-offset: -2px; }
.noroshi-inbox svg { width: 20px; height: 20px; display: block; fill: none; stroke: currentColor; stroke-width: 1.7; stroke-linejoin: round; stroke-linecap: round; }
.noroshi-inbox .bell {
  position: relative; display: grid; place-items: center; width: var(--noroshi-size, 40px); height: var(--noroshi-size, 40px);
  border-radius: 50%; color: var(--noroshi-icon, var(--_text));
}
.noroshi-inbox .bell svg { width: 55%; height: 55%; }
.noroshi-inbox .bell:hover, .noroshi-inbox .bell[aria-expanded=true] { background: color-mix(in srgb, currentColor 10%, transparent); }
.noroshi-inbox .badge {
  position: absolute; inset-block-start: 2px; inset-inline-end: 0; min-width: 17px; padding: 0 4px; border-radius: 9px;
  background: var(--_badge); color: #fff; font-size: 11px; font-weight: 600; line-height: 17px; text-align: center;
}
.noroshi-inbox .sr { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.noroshi-inbox .panel {
  position: absolute; z-index: var(--noroshi-z-index, 1000); inset-block-start: calc(100% + 8px); inset-inline-end: 0;
  transform: translateX(var(--_shift, 0)); width: var(--noroshi-width, 380px); max-width: calc(100vw - 16px);
  max-height: min(var(--noroshi-height, 560px), 80vh); display: flex; flex-direction: column; overflow: hidden;
  background: var(--_background); color: var(--_text); border: 1px solid var(--_border); border-radius: var(--_radius); box-shadow: var(--_shadow);
}
.noroshi-inbox[data-align=start] .panel { inset-inline: 0 auto; }
.noroshi-inbox .panel:focus { outline: none; }
.noroshi-inbox .head { display: flex; align-items: center; justify-content: space-between; gap: 12px; padding: 12px 16px; border-block-end: 1px solid var(--_border); }
.noroshi-inbox h2 { font: inherit; font-size: 1.15em; font-weight: 650; }
.noroshi-inbox .link { color: var(--_accent); font-weight: 550; border-radius: 4px; padding: 2px 4px; }
.noroshi-inbox .link:hover { text-decoration: underline; }
.noroshi-inbox .link[aria-disabled=true] { color: var(--_muted); font-weight: 400; cursor: default; text-decoration: none; }
.noroshi-inbox .list { overflow-y: auto; overscroll-behavior: contain; }
.noroshi-inbox .row { position: relative; display: flex; align-items: flex-start; }
.noroshi-inbox .row + .row { border-block-start: 1px solid var(--_border); }
.noroshi-inbox .row:hover { background: var(--_hover); }
.noroshi-inbox .row.unread::before {
  content: ''; position: absolute; inset-inline-start: 10px; inset-block-start: 20px; width: 8px; height: 8px; border-radius: 50%; background: var(--_accent);
}
.noroshi-inbox [data-column="0"] { flex: 1; min-width: 0; }
.noroshi-inbox .item { display: block; width: 100%; padding: 12px 4px 12px 28px; padding-inline: 28px 4px; overflow-wrap: anywhere; }
.noroshi-inbox .title { display: block; }
.noroshi-inbox .unread .title { font-weight: 650; }
.noroshi-inbox .text { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; color: var(--_muted); }
.noroshi-inbox time { display: block; color: var(--_muted); font-size: .86em; }
.noroshi-inbox .icon { display: grid; place-items: center; width: 32px; height: 32px; margin: 8px 8px 0 0; margin-inline: 0 8px; border-radius: 8px; color: var(--_muted); }
.noroshi-inbox .icon:hover { color: var(--_text); background: var(--_border); }
.noroshi-inbox .note { padding: 20px 16px; color: var(--_muted); text-align: center; }
.noroshi-inbox .error { color: var(--_error); padding-block: 10px; border-block-end: 1px solid var(--_border); }
.noroshi-inbox .more { flex: none; padding: 10px; border-radius: 0; border-block-start: 1px solid var(--_border); text-align: center; }
@media (max-width: 480px) {
.noroshi-inbox .panel, .noroshi-inbox[data-align=start] .panel { position: fixed; inset: auto 8px 8px; width: auto; max-width: none; max-height: 80vh; transform: none; }
}
@media (forced-colors: active) {
.noroshi-inbox .row.unread::before { background: Highlight; }
}
`

/** Without the white space that only people need. */
export const style: string = SHEET.replace(/\n\s*/g, '').replace(/([:;,{]) /g, '$1')
