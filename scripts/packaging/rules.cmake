# The places of `cmake --install`, and the Debian package of `cpack -G DEB`: the program, its licences, shell completions, a
# systemd unit with its options file, and an example configuration for HAProxy.
include(GNUInstallDirs)
install(TARGETS minfer RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Not in the architecture's library folder: the program looks for it beside its own folder, wherever that is.
if(minfer_has_mpi)
  install(TARGETS minfer_mpi LIBRARY DESTINATION lib/minfer)
endif()

# The licences of all parts of the program: minfer's own, and the one of the live page's chart library.
set(package_files ${PROJECT_BINARY_DIR}/package)
file(READ ${PROJECT_SOURCE_DIR}/LICENSE own_licence)
file(READ ${MINFER_CHART_LICENCE} chart_licence)
file(CONFIGURE OUTPUT ${package_files}/copyright @ONLY CONTENT
"@own_licence@
The live page of `minfer serve` holds Chart.js, which is part of the program. The notice of the package libjs-chart.js:

@chart_licence@")
install(FILES ${package_files}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/minfer)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/haproxy.cfg DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/minfer/examples)

# Written while installing: the program prints its completions, and the unit names the program's place.
install(CODE "set(packaging \"${CMAKE_CURRENT_LIST_DIR}\")
set(bindir \"${CMAKE_INSTALL_BINDIR}\")
set(datadir \"${CMAKE_INSTALL_DATADIR}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/at_install.cmake)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME minfer)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "minfer developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "minimal LLM inference engine and OpenAI-compatible server")
set(CPACK_PACKAGE_DESCRIPTION "Loads GGUF models, generates on the CPU or an NVIDIA GPU, serves OpenAI clients over HTTP,
and says of every step where the time went. A small demo model is inside the program.")
set(CPACK_STRIP_FILES ON)
# /etc/default is outside the prefix: the staging folder is a DESTDIR.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The MPI module's library is not a dependency: the module is loaded only if mpirun or srun starts the program.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "curl, haproxy, openmpi-bin")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/conffiles ${CMAKE_CURRENT_LIST_DIR}/postinst
  ${CMAKE_CURRENT_LIST_DIR}/prerm ${CMAKE_CURRENT_LIST_DIR}/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
