"""`hashprompt serve`: teach and query a classifier in the browser, or over HTTP.

server.py         the application, its socket, uvicorn
service.py        the parts of one server, which the routes use
settings.py       options and limits
predict_queue.py  photos of all clients, answered in batches
review_queue.py   unsure photos, stored if the user wants it
photo_archive.py  taught photos that are kept (`--photos`)
state_dir.py      the private folder of the server
http/             checks of every request, forms and uploads, errors, log and metrics
jobs/             sessions, one at a time, each in a separate process
routes/           the API
page/             the page
"""
