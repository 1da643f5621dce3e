from analysis.report import app

app()
