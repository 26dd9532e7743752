"use strict";

// Swagger's page, from this server's own files and its own description of the API.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger",
  deepLinking: false,
  validatorUrl: null,
  supportedSubmitMethods: ["get", "head"],
});
