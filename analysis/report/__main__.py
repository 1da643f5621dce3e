from analysis.report import app, main

__all__ = ["main"]

if __name__ == "__main__":
    app()
