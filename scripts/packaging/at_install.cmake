# Runs while installing, behind the program. In: packaging, the folder of this file; bindir and datadir, relative to the prefix.
set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
foreach(completion bash:bash-completion/completions/minfer zsh:zsh/vendor-completions/_minfer
    fish:fish/vendor_completions.d/minfer.fish)
  string(REGEX MATCH "^([a-z]+):(.*)$" matched ${completion})
  set(shell ${CMAKE_MATCH_1})
  set(path ${CMAKE_INSTALL_PREFIX}/${datadir}/${CMAKE_MATCH_2})
  execute_process(COMMAND ${root}/${bindir}/minfer completion ${shell} OUTPUT_VARIABLE script COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE "$ENV{DESTDIR}${path}" "${script}")
  message(STATUS "Installing: $ENV{DESTDIR}${path}")
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES ${path})
endforeach()

# As GNU has it: what belongs to /usr is configured in /etc.
set(MINFER_BINDIR ${CMAKE_INSTALL_PREFIX}/${bindir})
set(MINFER_SYSCONFDIR ${CMAKE_INSTALL_PREFIX}/etc)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(MINFER_SYSCONFDIR /etc)
endif()
set(unit ${CMAKE_INSTALL_PREFIX}/lib/systemd/system/minfer.service)
configure_file(${packaging}/minfer.service.in "$ENV{DESTDIR}${unit}" @ONLY)
message(STATUS "Installing: $ENV{DESTDIR}${unit}")
list(APPEND CMAKE_INSTALL_MANIFEST_FILES ${unit})
if(NOT EXISTS "$ENV{DESTDIR}${MINFER_SYSCONFDIR}/default/minfer")  # what someone has written there stays
  file(INSTALL ${packaging}/minfer.default DESTINATION ${MINFER_SYSCONFDIR}/default RENAME minfer)
endif()
