"""`hashprompt serve`: teach and ask a classifier in the browser, or by HTTP.

app.py          the application: what belongs to a server, put together
guard.py        what every request passes: host, origin, token, limits, log
uploads.py      photos that arrive in a form, or in a zip
answering.py    questions, batched together, answered by the last finished version
jobs.py         learns that wait, run or are done, on disk
learning.py     one learn at a time, each in a process of its own (learn_process.py)
asked.py        photos that it was unsure about, kept if the user wants it
routes/         the API
page/           the page
"""
