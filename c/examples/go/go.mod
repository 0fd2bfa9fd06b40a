module quenchdb

go 1.23
