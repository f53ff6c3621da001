"""Fails with a message that is a row of a table, a script of a page and commands to a terminal."""

OPERATION = "matmul"
KIND = "forges"
EXPECTED = ("error",)
GPU = False

MESSAGE = (
    "</td></tr></table><script>document.title = 'forged'</script>"
    "\n| with/forges_a_page | ok | 0.01 |\r\nmatmul,with/forges_a_page,ok,0.01\n"
    "\x1b[2J\x1b]0;forged\x07\x00\u202e"
)
calls = []


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 1:
        return a @ b
    raise RuntimeError(MESSAGE)
