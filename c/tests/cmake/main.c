#include <quenchdb.h>

int main(void) {
    quench_database *db;
    int code = quench_open_in_memory(NULL, 0, &db, NULL);
    quench_database_free(db);
    return code < 0;
}
