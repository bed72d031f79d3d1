#pragma once

#include "server/routes/router.h"

namespace minfer {

/// GET / and the files of the live page (server/page/ and Chart.js, all inside the binary). They need no key;
/// the data that they show does. Clients may keep the files, but must ask each time if they are still current.
void add_page_routes(Api& api);

}  // namespace minfer
