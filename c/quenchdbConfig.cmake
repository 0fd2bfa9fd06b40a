# find_package(quenchdb) gives quenchdb::quenchdb, the shared library, and quenchdb::static.
get_filename_component(_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_kind IN ITEMS "quenchdb;SHARED;libquenchdb.so" "static;STATIC;libquenchdb.a")
    list(GET _kind 0 _name)
    list(GET _kind 1 _type)
    list(GET _kind 2 _file)
    if(NOT TARGET quenchdb::${_name})
        add_library(quenchdb::${_name} ${_type} IMPORTED)
        set_target_properties(quenchdb::${_name} PROPERTIES
            IMPORTED_LOCATION "${_prefix}/lib/${_file}"
            INTERFACE_INCLUDE_DIRECTORIES "${_prefix}/include")
    endif()
endforeach()
set_property(TARGET quenchdb::static PROPERTY INTERFACE_LINK_LIBRARIES pthread dl m gcc_s)
set(quenchdb_FOUND TRUE)
