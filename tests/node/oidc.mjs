// An OAuth and OpenID provider on this host, for tests: the real `oidc-provider`, with everything in memory.
//
// node oidc.mjs PROGRAM PATH...   PROGRAM is oidc-provider's main file; PATH... are the paths of redirect URIs, on any port.
//
// Anybody signs in with any name and any password; the consent page has "Continue" and "[ Cancel ]". Beside what the
// provider is, for the tests alone:
//   GET  /api/mail          what a tool would call: 200 with the user and the scopes of the bearer token, or 401 or 403
//   GET  /test/requests     how often the token endpoint was asked, by grant type
//   POST /test/break?status=503   the token endpoint answers with this status from now on; without one it works again
//   POST /test/forget       all grants are revoked, as a user does it at the provider's own pages
// It prints "listening on URL" once it can be asked, and ends when its input ends: it never outlives whoever started it.

import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const [program, ...paths] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(program).href);

const grants = new Set();
const asked = {};
let broken = 0;

const client = (id, secret, more = {}) => ({
  client_id: id,
  ...(secret ? { client_secret: secret } : { token_endpoint_auth_method: 'none' }),
  // Of a native client any loopback port is good, so a test need not know the port of its server beforehand.
  application_type: 'native',
  redirect_uris: paths.map((path) => `http://127.0.0.1${path}`),
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  ...more,
});

const configuration = {
  clients: [
    client('interlock', 'a secret of the interlock client'),
    client('public', ''),
    client('console', 'a secret of the console client', { id_token_signed_response_alg: 'ES256' }),
  ],
  scopes: ['openid', 'offline_access', 'mail.read', 'mail.send'],
  claims: { openid: ['sub'], profile: ['name', 'preferred_username', 'groups'], email: ['email', 'email_verified'] },
  conformIdTokenClaims: false,
  features: { revocation: { enabled: true }, devInteractions: { enabled: true } },
  findAccount: (ctx, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      name: id,
      preferred_username: id,
      email: `${id}@example.org`,
      email_verified: !id.startsWith('unverified'),
      groups: id.startsWith('operator') ? ['interlock-operators'] : [],
    }),
  }),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  ttl: { AccessToken: 3600, AuthorizationCode: 60, Grant: 86400, IdToken: 3600, Interaction: 600, RefreshToken: 86400, Session: 86400 },
  jwks: { keys: [await signingKey({ name: 'RSASSA-PKCS1-v1_5', modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]), hash: 'SHA-256' }, 'RS256'), await signingKey({ name: 'ECDSA', namedCurve: 'P-256' }, 'ES256')] },
  cookies: { keys: ['only for tests'] },
};

async function signingKey(kind, alg) {
  const pair = await crypto.subtle.generateKey(kind, true, ['sign', 'verify']);
  return { ...(await crypto.subtle.exportKey('jwk', pair.privateKey)), alg, use: 'sig', kid: alg, key_ops: undefined, ext: undefined };
}

const say = (response, status, body) => {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
};

async function mail(provider, request, response) {
  const [, bearer] = /^Bearer (.+)$/i.exec(request.headers.authorization ?? '') ?? [];
  const token = bearer && (await provider.AccessToken.find(bearer));
  if (!token) return say(response, 401, { error: 'invalid_token' });
  if (!token.scopes.has('mail.read')) return say(response, 403, { error: 'insufficient_scope' });
  return say(response, 200, { user: token.accountId, scopes: [...token.scopes] });
}

async function control(provider, url, response) {
  if (url.pathname === '/test/requests') return say(response, 200, asked);
  if (url.pathname === '/test/break') broken = Number(url.searchParams.get('status') ?? 0);
  if (url.pathname === '/test/forget') {
    for (const id of grants) await (await provider.Grant.find(id))?.destroy();
    grants.clear();
  }
  return say(response, 200, {});
}

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  // By this name it is another site than 127.0.0.1, as a real provider is: browsers keep cookies apart.
  const issuer = `http://localhost:${server.address().port}`;
  const provider = new Provider(issuer, configuration);
  provider.on('grant.saved', (grant) => grants.add(grant.jti));
  provider.use(async (ctx, next) => {
    await next();
    if (ctx.path === '/token') asked[ctx.oidc?.params?.grant_type] = (asked[ctx.oidc?.params?.grant_type] ?? 0) + 1;
  });
  const handle = provider.callback();
  server.on('request', (request, response) => {
    const url = new URL(request.url, issuer);
    if (url.pathname.startsWith('/test/')) return control(provider, url, response);
    if (url.pathname === '/api/mail') return mail(provider, request, response);
    if (url.pathname === '/token' && broken) {
      request.resume();
      return say(response, broken, { error: 'server_error' });
    }
    return handle(request, response);
  });
  console.log(`listening on ${issuer}`);
});
process.stdin.resume().on('end', () => process.exit());
