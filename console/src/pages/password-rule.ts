/** The least length of a password, in characters; the server decides, this only warns early. */
export const PASSWORD_MIN = 12
