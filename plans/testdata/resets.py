"""Writes resets.csv: when the months of subscriptions begin, by Python's zoneinfo and calendar.

    python3 plans/testdata/resets.py > plans/testdata/resets.csv

A line is a zone, the time of the day, the day of the month, and the Unix time of each beginning from
December 2023 to March 2028. A month that lacks the day begins on its last day.
"""
import calendar
import datetime
import zoneinfo

MONTHS = [(2023 + (11 + n) // 12, (11 + n) % 12 + 1) for n in range(52)]

for name in ("Europe/Berlin", "America/New_York"):
    zone = zoneinfo.ZoneInfo(name)
    for clock in ("00:00:00", "17:45:12"):
        for day in range(1, 32):
            row = [name, clock, str(day)]
            for year, month in MONTHS:
                last = calendar.monthrange(year, month)[1]
                date = datetime.date(year, month, min(day, last))
                at = datetime.datetime.combine(date, datetime.time.fromisoformat(clock), zone)
                row.append(str(int(at.timestamp())))
            print(",".join(row))
