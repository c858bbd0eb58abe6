/** The token of a link, from the fragment: browsers never send it, and this removes it from the history. */
export function takeToken(): string {
  const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? ''
  if (token) history.replaceState(null, '', location.pathname)
  return token
}
