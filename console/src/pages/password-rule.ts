/** The least length of a password, in characters; the server decides (15 bytes), this only warns early. */
export const PASSWORD_MIN = 15
