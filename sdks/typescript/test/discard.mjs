/** Ends a node at once. A drain waits for what is open; the tests that are about drains drain. */
export async function discard(node) {
  if (!node) return
  await node.kill()
  node.removeData()
}
